#pragma once
#include <array>
#include <memory>
#include <vector>

#include "base/trace.h"
#include "model/decoder.h"
#include "model/step_inputs.h"
#include "ops/backend.h"
#include "runtime/plan_batch.h"
#include "runtime/stateful_executor.h"
#include "runtime/step_draws.h"
#include "runtime/step_graphs.h"

namespace octavo {

// The executor of a device whose ops are asynchronous: two steps under way in one queue. A step takes the tokens of the
// one before it on the device; the host sees them when it waits. Once warm, a step allocates nothing.
class DeviceExecutor final : public StatefulExecutor {
 public:
  struct Limits {
    int max_tokens = 0;
    int max_seqs = 0;
    int max_blocks_per_seq = 0;
    int max_positions = 0;
    bool graphs = true;  // record decode steps
  };
  DeviceExecutor(Backend& backend, Queue& queue, Decoder& decoder, std::vector<KvPool*> pools, const Limits& limits,
                 Trace* trace = nullptr);
  ~DeviceExecutor() override;

  int slots() const override { return kSlots; }
  // A mask is filled from the tokens before it. Penalties are kept up on the device.
  bool needs_tokens(const SamplingParams& params) const override { return params.grammar != nullptr; }
  void submit(const StepPlan& plan, int slot) override;
  const StepResult& wait(int slot) override;

 private:
  static constexpr int kSlots = 2;

  struct Slot {
    Slot(Backend& backend, Queue& queue, const Decoder& decoder, const Limits& limits);
    StepId step = 0;
    StepInputs inputs;
    StepDraws draws;
    StepGraphs graphs;
    std::unique_ptr<DeviceMemory> host_sources, sources;  // [max_tokens], see TakeTokensParams
    std::unique_ptr<DeviceEvent> done;
    StepResult result;
  };

  void start(const StepPlan& plan, Slot& slot);
  void take_tokens(const StepPlan& plan, Slot& slot);
  void forward(ForwardBatch& batch, Slot& slot, int padded_rows);
  bool grow(std::unique_ptr<DeviceMemory>& memory, int rows);

  Backend& backend_;
  Queue& queue_;
  Decoder& decoder_;
  std::vector<KvPool*> pools_;
  Limits limits_;
  struct Phases {
    Trace::Phase *batch = nullptr, *launch = nullptr, *draw = nullptr, *read = nullptr;
  };
  Phases phases_;
  PlanBatch plan_batch_;
  DrawRows draw_rows_;
  std::array<std::unique_ptr<Slot>, kSlots> slots_;
  // Of the step that runs on the device; [rows, vocab].
  std::unique_ptr<DeviceMemory> logits_, changed_;
};

}  // namespace octavo
