#include "runtime/channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <iterator>

#include "base/format.h"

namespace octavo {

Channel::Channel() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw Error(ErrorCode::kInternal, "channel", cat("cannot open an eventfd: ", std::strerror(errno)));
}

Channel::~Channel() { close(fd_); }

void Channel::publish(std::vector<Delta>& deltas) {
  if (deltas.empty()) return;
  {
    std::lock_guard lock(mutex_);
    if (pending_.empty()) {
      pending_.swap(deltas);
    } else {
      pending_.insert(pending_.end(), std::make_move_iterator(deltas.begin()), std::make_move_iterator(deltas.end()));
    }
  }
  deltas.clear();
  const uint64_t one = 1;
  // Fails only when the counter is about to overflow, and then the fd is readable already.
  [[maybe_unused]] const ssize_t n = write(fd_, &one, sizeof one);
}

std::vector<Delta> Channel::drain() {
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd_, &count, sizeof count);
  std::vector<Delta> out;
  std::lock_guard lock(mutex_);
  out.swap(pending_);
  return out;
}

bool Channel::wait(int timeout_ms) const {
  pollfd p{fd_, POLLIN, 0};
  return poll(&p, 1, timeout_ms) > 0 && (p.revents & POLLIN);
}

}  // namespace octavo
