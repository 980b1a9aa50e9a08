#include "backend/cuda/queue.h"

#include <utility>

#include "backend/cuda/check.h"

namespace octavo::cuda {

GpuQueue::GpuQueue(const DeviceProperties& device, WorkspaceBytes workspace_bytes)
    : device_(device), workspace_bytes_(std::move(workspace_bytes)) {
  check(cudaStreamCreateWithFlags(&stream_, cudaStreamNonBlocking), "making a stream");
}

GpuQueue::~GpuQueue() {
  cudaStreamSynchronize(stream_);
  cudaStreamDestroy(stream_);
}

void GpuQueue::reserve(const WorkspaceLimits& limits) {
  const size_t bytes = workspace_bytes_(limits);
  if (workspace_ && bytes <= workspace_->size()) return;
  wait();  // nothing reads the old one any more
  workspace_.reset();
  workspace_ = std::make_unique<GpuMemory>(bytes);
}

void GpuQueue::parallel_for(int n, const std::function<void(int)>& body) {
  for (int i = 0; i < n; ++i) body(i);
}

void GpuQueue::wait() { check(cudaStreamSynchronize(stream_), "a step on the GPU"); }

Launch GpuQueue::launch() const {
  return {stream_, workspace_ ? workspace_->data() : nullptr, workspace_ ? workspace_->size() : 0, &device_};
}

}  // namespace octavo::cuda
