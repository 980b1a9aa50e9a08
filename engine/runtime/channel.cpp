#include "runtime/channel.h"

#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <utility>

#include "base/clock.h"
#include "base/format.h"
#include "base/reserve.h"

namespace octavo {
namespace {

constexpr int64_t kQuietNs = 250'000'000;

}  // namespace

Channel::Channel() : fd_(eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC)) {
  if (fd_ < 0) throw Error(ErrorCode::kInternal, "channel", cat("cannot open an eventfd: ", std::strerror(errno)));
}

Channel::~Channel() { close(fd_); }

void Channel::publish(std::vector<Delta>& deltas) {
  if (deltas.empty()) return;
  {
    std::lock_guard lock(mutex_);
    if (direct_.empty() && pending_.empty()) {
      pending_.swap(deltas);
    } else {
      reserve_more(pending_, deltas.size());
      const int64_t now = direct_.empty() ? 0 : monotonic_ns();
      bool quiet = true;
      for (Delta& delta : deltas) {
        quiet &= write_directly(delta, now);
        pending_.push_back(std::move(delta));
      }
      deltas.clear();
      if (quiet && now - woken_ns_ < kQuietNs) return;
      woken_ns_ = now;
    }
  }
  deltas.clear();
  const uint64_t one = 1;
  // Fails only when the counter is about to overflow, and then the fd is readable already.
  [[maybe_unused]] const ssize_t n = write(fd_, &one, sizeof one);
}

// True: the consumer need not hear of the delta soon.
bool Channel::write_directly(Delta& delta, int64_t now) noexcept {
  const auto found = direct_.find(delta.id);
  if (found == direct_.end()) return false;
  if (delta.finish == Finish::kNone) {
    if (delta.text.empty()) return true;
    const auto result = found->second.stream.send(delta.text, delta.rest);
    delta.sent = result != DirectStream::Result::kNothing;
    if (result == DirectStream::Result::kAll) {
      found->second.last_ns = now;
      return true;
    }
  }
  direct_.erase(found);
  return false;
}

bool Channel::send_directly(RequestId request, int fd, std::string head, std::string tail) {
  DirectStream stream(fd, std::move(head), std::move(tail));
  if (!stream.open()) return false;
  std::lock_guard lock(mutex_);
  if (std::ranges::any_of(pending_, [request](const Delta& delta) { return delta.id == request; })) return false;
  const int64_t now = monotonic_ns();
  return direct_.try_emplace(request, std::move(stream), now).second;
}

std::optional<double> Channel::take_back(RequestId request) {
  std::lock_guard lock(mutex_);
  const auto found = direct_.find(request);
  if (found == direct_.end()) return std::nullopt;
  const double last = static_cast<double>(found->second.last_ns) * 1e-9;
  direct_.erase(found);
  return last;
}

std::vector<Delta> Channel::drain() {
  std::vector<Delta> out;
  std::lock_guard lock(mutex_);
  out.reserve(pending_.size());
  uint64_t count;
  [[maybe_unused]] const ssize_t n = read(fd_, &count, sizeof count);
  if (!pending_.empty()) out.swap(pending_);  // else the room stays that was made before
  return out;
}

bool Channel::wait(int timeout_ms) const {
  pollfd p{fd_, POLLIN, 0};
  return poll(&p, 1, timeout_ms) > 0 && (p.revents & POLLIN);
}

}  // namespace octavo
