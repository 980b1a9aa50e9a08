// The part of the device that orders work: streams, events, graphs.
#include <algorithm>
#include <utility>

#include "backend/cuda/emulator/device.h"

namespace octavo::emulator {

Stream* Device::create_stream() {
  auto stream = std::make_unique<Stream>();
  Stream* made = stream.get();
  streams_[made] = std::move(stream);
  return made;
}

cudaError_t Device::destroy_stream(Stream* stream) {
  if (!streams_.count(stream)) return note(cudaErrorInvalidResourceHandle);
  drain(*stream);
  for (auto& [event, owned] : events_) {
    if (event->stream == stream) event->stream = nullptr;
  }
  streams_.erase(stream);
  return lasting_;
}

cudaError_t Device::enqueue(Stream* stream, Work work) {
  if (stream && !streams_.count(stream)) return note(cudaErrorInvalidResourceHandle);
  Stream& target = of(stream);
  if (target.capture) {
    target.capture->work.push_back(std::move(work));
    return cudaSuccess;
  }
  if (!stream) {  // the default stream waits for the others
    if (captures_) return note(cudaErrorStreamCaptureUnsupported);
    drain_all();
  }
  target.work.push_back(std::move(work));
  return cudaSuccess;
}

void Device::step(Stream& stream) {
  const Work work = std::move(stream.work.front());
  stream.work.pop_front();
  if (lasting_ == cudaSuccess) work();
}

void Device::drain(Stream& stream) {
  if (&stream != &default_stream_) drain(default_stream_);
  while (!stream.work.empty()) step(stream);
}

void Device::drain_all() {
  drain(default_stream_);
  for (auto& [stream, owned] : streams_) drain(*stream);
}

cudaError_t Device::synchronize(Stream* stream) {
  if (stream && !streams_.count(stream)) return note(cudaErrorInvalidResourceHandle);
  if (of(stream).capture || (!stream && captures_)) return note(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t status = answer(Call::kSync); status != cudaSuccess) return status;
  drain(of(stream));
  return lasting_;
}

cudaError_t Device::synchronize_all() {
  if (captures_) return note(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t status = answer(Call::kSync); status != cudaSuccess) return status;
  drain_all();
  return lasting_;
}

// Whoever polls drives the work: one piece per call.
cudaError_t Device::query(Stream* stream) {
  if (const cudaError_t status = answer(Call::kSync); status != cudaSuccess) return status;
  Stream& target = of(stream);
  if (target.work.empty()) return lasting_;
  drain(default_stream_);
  if (!target.work.empty()) step(target);
  return target.work.empty() ? lasting_ : cudaErrorNotReady;
}

Event* Device::create_event() {
  auto event = std::make_unique<Event>();
  Event* made = event.get();
  events_[made] = std::move(event);
  return made;
}

cudaError_t Device::destroy_event(Event* event) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  reach(*event, event->recorded);
  events_.erase(event);
  return lasting_;
}

cudaError_t Device::record_event(Event* event, Stream* stream) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  Stream& target = of(stream);
  event->capture = target.capture;
  if (target.capture) return cudaSuccess;  // an order within the graph, which keeps it anyway
  event->stream = &target;
  const uint64_t number = ++event->recorded;
  return enqueue(stream, [event, number] {
    event->reached = number;
    event->time = std::chrono::steady_clock::now();
  });
}

// Does the work before the given record of the event.
void Device::reach(Event& event, uint64_t recorded) {
  if (event.stream && event.stream != &default_stream_) drain(default_stream_);
  while (event.reached < recorded && event.stream && !event.stream->work.empty()) step(*event.stream);
}

cudaError_t Device::wait_event(Stream* stream, Event* event) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  Stream& target = of(stream);
  if (event->capture) {
    target.capture = event->capture;
    return cudaSuccess;
  }
  if (target.capture || event->stream == &target) return cudaSuccess;
  const uint64_t number = event->recorded;
  return enqueue(stream, [this, event, number] {
    if (events_.count(event)) reach(*event, number);
  });
}

cudaError_t Device::synchronize(Event* event) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  if (event->capture) return note(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t status = answer(Call::kSync); status != cudaSuccess) return status;
  reach(*event, event->recorded);
  return lasting_;
}

cudaError_t Device::query(Event* event) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  if (const cudaError_t status = answer(Call::kSync); status != cudaSuccess) return status;
  if (event->reached < event->recorded && event->stream && !event->stream->work.empty()) {
    if (event->stream != &default_stream_) drain(default_stream_);
    step(*event->stream);
  }
  return event->reached < event->recorded ? cudaErrorNotReady : lasting_;
}

cudaError_t Device::elapsed(float* milliseconds, const Event* begin, const Event* end) {
  if (begin->reached == 0 || end->reached == 0) return note(cudaErrorInvalidResourceHandle);
  if (begin->reached < begin->recorded || end->reached < end->recorded) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->time - begin->time).count();
  return cudaSuccess;
}

cudaError_t Device::begin_capture(Stream* stream) {
  if (!stream || !streams_.count(stream) || stream->capture) return note(cudaErrorStreamCaptureUnsupported);
  stream->capture = std::make_shared<Graph>();
  stream->leads_capture = true;
  ++captures_;
  return cudaSuccess;
}

cudaError_t Device::end_capture(Stream* stream, Graph** graph) {
  *graph = nullptr;
  if (!stream || !streams_.count(stream) || !stream->leads_capture) return note(cudaErrorStreamCaptureUnsupported);
  const std::shared_ptr<Graph> captured = std::move(stream->capture);
  for (auto& [other, owned] : streams_) {
    if (other->capture == captured) other->capture = nullptr;
  }
  for (auto& [event, owned] : events_) {
    if (event->capture == captured) event->capture = nullptr;
  }
  stream->leads_capture = false;
  --captures_;
  *graph = captured.get();
  graphs_[*graph] = captured;
  return lasting_;
}

GraphExec* Device::instantiate(const Graph* graph) {
  auto exec = std::make_unique<GraphExec>(GraphExec{graph->work});
  GraphExec* made = exec.get();
  execs_[made] = std::move(exec);
  return made;
}

cudaError_t Device::launch_graph(GraphExec* exec, Stream* stream) {
  if (!execs_.count(exec)) return note(cudaErrorInvalidResourceHandle);
  if (const cudaError_t status = answer(Call::kLaunch); status != cudaSuccess) return status;
  for (const Work& work : exec->work) {
    if (const cudaError_t status = enqueue(stream, work); status != cudaSuccess) return status;
  }
  return cudaSuccess;
}

cudaError_t Device::destroy_graph(Graph* graph) {
  return graphs_.erase(graph) ? cudaSuccess : note(cudaErrorInvalidResourceHandle);
}

cudaError_t Device::destroy_exec(GraphExec* exec) {
  return execs_.erase(exec) ? cudaSuccess : note(cudaErrorInvalidResourceHandle);
}

}  // namespace octavo::emulator
