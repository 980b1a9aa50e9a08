#pragma once
#include <memory>
#include <mutex>
#include <vector>

#include "runtime/delta.h"

namespace octavo {

// Deltas on their way from the engine thread to one consumer. The eventfd is readable while deltas wait, so an event
// loop needs one wake-up for all its requests. Any thread may wait or drain; only the engine thread publishes.
// enable_shared_from_this lets the binding hand out the pointer itself: a wrapper that drops a Python reference would
// need the interpreter's lock on the engine thread.
class Channel : public std::enable_shared_from_this<Channel> {
 public:
  Channel();  // throws Error(kInternal, "channel", ...) when no eventfd can be had
  ~Channel();
  Channel(const Channel&) = delete;
  Channel& operator=(const Channel&) = delete;

  int fd() const { return fd_; }

  // Appends `deltas` (left empty) and makes the eventfd readable. Where it throws std::bad_alloc nothing has happened.
  void publish(std::vector<Delta>& deltas);

  // Everything published so far, in order. Reads the eventfd before it swaps the list: no wake-up is lost.
  std::vector<Delta> drain();

  // Waits until deltas are there or `timeout_ms` has passed; true when there are.
  bool wait(int timeout_ms) const;

 private:
  int fd_;
  std::mutex mutex_;
  std::vector<Delta> pending_;
};

}  // namespace octavo
