// The part of the device that orders work: streams, events, graphs.
#include <algorithm>
#include <utility>

#include "backend/cuda/emulator/device.h"

namespace octavo::emulator {

Stream* Device::create_stream(int device) {
  auto stream = std::make_unique<Stream>();
  stream->device = device;
  Stream* made = stream.get();
  streams_[made] = std::move(stream);
  return made;
}

bool Device::is_elsewhere(Stream* stream, int device) const {
  const auto found = streams_.find(stream);
  return found != streams_.end() && stream->device != device;
}

cudaError_t Device::destroy_stream(Stream* stream) {
  if (!streams_.count(stream)) return note(cudaErrorInvalidResourceHandle);
  drain(*stream);
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
  if (event->last) reach(*event->last);
  events_.erase(event);
  return lasting_;
}

cudaError_t Device::record_event(Event* event, Stream* stream) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  Stream& target = of(stream);
  event->capture = target.capture;
  if (target.capture) return cudaSuccess;  // an order within the graph, which keeps it anyway
  event->last = std::make_shared<EventRecord>();
  event->last->stream = &target;
  return enqueue(stream, [record = event->last] {
    record->reached = true;
    record->time = std::chrono::steady_clock::now();
  });
}

// Whether it is ahead and its stream, if that is still there, has something to do.
bool Device::has_work(const EventRecord& record) const {
  if (record.reached) return false;
  if (record.stream == &default_stream_) return !default_stream_.work.empty();
  const auto found = streams_.find(record.stream);
  return found != streams_.end() && !found->second->work.empty();
}

// Does the work before it.
void Device::reach(EventRecord& record) {
  if (record.stream != &default_stream_) drain(default_stream_);
  while (has_work(record)) step(*record.stream);
}

cudaError_t Device::wait_event(Stream* stream, Event* event) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  Stream& target = of(stream);
  if (event->capture) {
    target.capture = event->capture;
    return cudaSuccess;
  }
  if (target.capture || !event->last || event->last->stream == &target) return cudaSuccess;
  return enqueue(stream, [this, record = event->last] { reach(*record); });
}

cudaError_t Device::synchronize(Event* event) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  if (event->capture) return note(cudaErrorStreamCaptureUnsupported);
  if (const cudaError_t status = answer(Call::kSync); status != cudaSuccess) return status;
  if (event->last) reach(*event->last);
  return lasting_;
}

cudaError_t Device::query(Event* event) {
  if (!events_.count(event)) return note(cudaErrorInvalidResourceHandle);
  if (const cudaError_t status = answer(Call::kSync); status != cudaSuccess) return status;
  if (!event->last) return lasting_;
  if (has_work(*event->last)) {
    if (event->last->stream != &default_stream_) drain(default_stream_);
    if (has_work(*event->last)) step(*event->last->stream);
  }
  return event->last->reached ? lasting_ : cudaErrorNotReady;
}

cudaError_t Device::elapsed(float* milliseconds, const Event* begin, const Event* end) {
  if (!begin->last || !end->last) return note(cudaErrorInvalidResourceHandle);
  if (!begin->last->reached || !end->last->reached) return cudaErrorNotReady;
  *milliseconds = std::chrono::duration<float, std::milli>(end->last->time - begin->last->time).count();
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
