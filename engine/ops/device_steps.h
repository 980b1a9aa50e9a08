#pragma once
#include <memory>

#include "ops/draw_params.h"

namespace octavo {

class Queue;

// A point in a queue's work that the host can wait for.
class DeviceEvent {
 public:
  virtual ~DeviceEvent() = default;
  virtual void record(Queue& queue) = 0;  // behind all that was asked of the queue
  virtual bool reached() = 0;             // without waiting; true where nothing was recorded
  virtual void wait() = 0;                // throws what failed on the device meanwhile
};

// Ops that were recorded once and are launched together, with the same parameters and addresses.
class DeviceGraph {
 public:
  virtual ~DeviceGraph() = default;
  virtual void launch(Queue& queue) = 0;
};

// What a backend whose ops are asynchronous offers beside them, so that steps follow one another without the host.
class DeviceSteps {
 public:
  virtual ~DeviceSteps() = default;
  virtual void draw(Queue& queue, const DrawParams& p) = 0;
  virtual void take_tokens(Queue& queue, const TakeTokensParams& p) = 0;
  virtual std::unique_ptr<DeviceEvent> make_event() = 0;
  // The ops in between are recorded instead of carried out; none of them may be its kind's first on this queue.
  virtual void begin_recording(Queue& queue) = 0;
  virtual std::unique_ptr<DeviceGraph> end_recording(Queue& queue) = 0;
};

}  // namespace octavo
