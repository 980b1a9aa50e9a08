#include "backend/cuda/steps.h"

#include "backend/cuda/queue.h"
#include "backend/cuda/sampling.h"

namespace octavo::cuda {
namespace {

GpuQueue& gpu(Queue& queue) { return static_cast<GpuQueue&>(queue); }

class GpuEvent final : public DeviceEvent {
 public:
  GpuEvent() { check(cudaEventCreateWithFlags(&event_, cudaEventDisableTiming), "making an event"); }
  ~GpuEvent() override { cudaEventDestroy(event_); }
  void record(Queue& queue) override { check(cudaEventRecord(event_, gpu(queue).stream()), "recording an event"); }
  bool reached() override {
    const cudaError_t status = cudaEventQuery(event_);
    if (status != cudaErrorNotReady) check(status, "asking for an event");
    return status == cudaSuccess;
  }
  void wait() override { check(cudaEventSynchronize(event_), "a step on the GPU"); }

 private:
  cudaEvent_t event_ = nullptr;
};

class GpuGraph final : public DeviceGraph {
 public:
  explicit GpuGraph(cudaGraph_t graph) {
    const cudaError_t status = cudaGraphInstantiate(&exec_, graph, 0);
    cudaGraphDestroy(graph);
    check(status, "instantiating a graph");
  }
  ~GpuGraph() override { cudaGraphExecDestroy(exec_); }
  void launch(Queue& queue) override { check(cudaGraphLaunch(exec_, gpu(queue).stream()), "launching a graph"); }

 private:
  cudaGraphExec_t exec_ = nullptr;
};

}  // namespace

void GpuSteps::draw(Queue& queue, const DrawParams& p) { cuda::draw(gpu(queue).launch(), p); }

void GpuSteps::take_tokens(Queue& queue, const TakeTokensParams& p) { cuda::take_tokens(gpu(queue).launch(), p); }

std::unique_ptr<DeviceEvent> GpuSteps::make_event() { return std::make_unique<GpuEvent>(); }

void GpuSteps::begin_recording(Queue& queue) {
  check(cudaStreamBeginCapture(gpu(queue).stream(), cudaStreamCaptureModeThreadLocal), "recording a graph");
}

std::unique_ptr<DeviceGraph> GpuSteps::end_recording(Queue& queue) {
  cudaGraph_t graph = nullptr;
  check(cudaStreamEndCapture(gpu(queue).stream(), &graph), "recording a graph");
  return std::make_unique<GpuGraph>(graph);
}

}  // namespace octavo::cuda
