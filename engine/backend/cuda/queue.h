#pragma once
#include <functional>
#include <memory>
#include <optional>

#include "backend/cuda/device.h"
#include "backend/cuda/launches.h"
#include "backend/cuda/memory.h"

namespace octavo::cuda {

// A stream of its own, or for a while somebody else's, and the workspace of what runs in it.
class GpuQueue final : public Queue {
 public:
  using WorkspaceBytes = std::function<size_t(const WorkspaceLimits&)>;
  GpuQueue(const DeviceProperties& device, WorkspaceBytes workspace_bytes);
  ~GpuQueue() override;

  int threads() const override { return 1; }
  void reserve(const WorkspaceLimits& limits) override;
  void parallel_for(int n, const std::function<void(int)>& body) override;
  void wait() override;
  void watch_regions(RegionTimes*) override {}  // work in a stream has no regions on the host
  void enter(uintptr_t stream) override;
  void leave() override;

  cudaStream_t stream() const { return stream_; }
  Launch launch() const;

 private:
  // What `next` is asked from now on waits for what `stream` was asked.
  void go_on(cudaStream_t stream, cudaStream_t next);

  const DeviceProperties& device_;
  WorkspaceBytes workspace_bytes_;
  cudaStream_t own_ = nullptr;
  cudaStream_t stream_ = nullptr;  // the one in use
  cudaEvent_t turn_ = nullptr;
  std::optional<DeviceGuard> entered_;
  std::unique_ptr<GpuMemory> workspace_;
};

}  // namespace octavo::cuda
