#include "backend/cuda/queue.h"

#include <utility>

#include "backend/cuda/check.h"
#include "base/errors.h"

namespace octavo::cuda {

GpuQueue::GpuQueue(const DeviceProperties& device, WorkspaceBytes workspace_bytes)
    : device_(device), workspace_bytes_(std::move(workspace_bytes)) {
  check(cudaStreamCreateWithFlags(&own_, cudaStreamNonBlocking), "making a stream");
  check(cudaEventCreateWithFlags(&turn_, cudaEventDisableTiming), "making an event");
  stream_ = own_;
}

GpuQueue::~GpuQueue() {
  cudaStreamSynchronize(own_);
  cudaEventDestroy(turn_);
  cudaStreamDestroy(own_);
}

void GpuQueue::enter(uintptr_t handle) {
  const auto stream = reinterpret_cast<cudaStream_t>(handle);
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  check(cudaStreamIsCapturing(stream, &capture), "entering a stream");
  if (capture != cudaStreamCaptureStatusNone) {
    throw Error(ErrorCode::kUnsupported, "stream",
                "the stream is being recorded as a graph: what the host gives these ops cannot be replayed");
  }
  entered_.emplace(device_.ordinal);
  go_on(own_, stream);
  stream_ = stream;
}

void GpuQueue::leave() {
  const cudaStream_t stream = std::exchange(stream_, own_);
  go_on(stream, own_);
  entered_.reset();
}

void GpuQueue::go_on(cudaStream_t stream, cudaStream_t next) {
  check(cudaEventRecord(turn_, stream), "recording an event");
  check(cudaStreamWaitEvent(next, turn_, 0), "waiting for an event");
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
