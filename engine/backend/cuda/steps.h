#pragma once
#include "ops/device_steps.h"

namespace octavo::cuda {

// Events, graphs and draws on the queues of the CUDA backend.
class GpuSteps final : public DeviceSteps {
 public:
  void draw(Queue& queue, const DrawParams& p) override;
  void take_tokens(Queue& queue, const TakeTokensParams& p) override;
  std::unique_ptr<DeviceEvent> make_event() override;
  void begin_recording(Queue& queue) override;
  std::unique_ptr<DeviceGraph> end_recording(Queue& queue) override;
};

}  // namespace octavo::cuda
