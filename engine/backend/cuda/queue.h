#pragma once
#include <functional>
#include <memory>

#include "backend/cuda/launches.h"
#include "backend/cuda/memory.h"

namespace octavo::cuda {

// A stream and the workspace of what runs in it.
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

  cudaStream_t stream() const { return stream_; }
  Launch launch() const;

 private:
  const DeviceProperties& device_;
  WorkspaceBytes workspace_bytes_;
  cudaStream_t stream_ = nullptr;
  std::unique_ptr<GpuMemory> workspace_;
};

}  // namespace octavo::cuda
