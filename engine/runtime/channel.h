#pragma once
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

#include "runtime/delta.h"
#include "runtime/direct_stream.h"

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

  // Appends `deltas` (left empty, with the room that drain() made for the next) and makes the eventfd readable. Where
  // it throws std::bad_alloc nothing has happened. Deltas of which the consumer learns nothing new, since their text
  // was written directly, wait a while for others.
  void publish(std::vector<Delta>& deltas);

  // From now on the text of `request`, which has one choice, is written to the socket `fd` by publish() itself, until
  // it finishes, the socket takes no more at once, or the consumer takes it back; see DirectStream. False: deltas of it
  // wait to be drained, or there is no descriptor left, and nothing has changed.
  bool send_directly(RequestId request, int fd, std::string head, std::string tail);

  // Ends that. When text was written last, in seconds on CLOCK_MONOTONIC; nullopt: it had ended, or not begun.
  std::optional<double> take_back(RequestId request);

  // Everything published so far, in order, and makes room for as many to come: then no step has to. Reads the eventfd
  // before it swaps the list: no wake-up is lost. Where it throws std::bad_alloc nothing has happened.
  std::vector<Delta> drain();

  // Waits until deltas are there or `timeout_ms` has passed; true when there are.
  bool wait(int timeout_ms) const;

 private:
  struct Direct {
    DirectStream stream;
    int64_t last_ns;
  };

  bool write_directly(Delta& delta, int64_t now) noexcept;

  int fd_;
  std::mutex mutex_;
  std::vector<Delta> pending_;
  std::unordered_map<RequestId, Direct> direct_;
  int64_t woken_ns_ = 0;  // when the consumer was told last, while there is something direct
};

}  // namespace octavo
