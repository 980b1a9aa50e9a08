#pragma once
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace octavo {

// Many producers, one consumer, which takes everything at once and sleeps while there is nothing.
template <class Message>
class Inbox {
 public:
  static constexpr std::chrono::milliseconds kNoLimit = std::chrono::milliseconds::max();

  // False once closed: the message is not taken. Nor is it when this throws std::bad_alloc.
  bool push(Message message) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      messages_.push_back(std::move(message));
    }
    ready_.notify_one();
    return true;
  }

  // Swaps what is there into `out` (emptied first). It waits `at_most` so long for a message or for close().
  // Returns false when the inbox is closed and empty.
  bool take(std::vector<Message>& out, std::chrono::milliseconds at_most) {
    out.clear();
    std::unique_lock lock(mutex_);
    const auto something = [this] { return !messages_.empty() || closed_; };
    if (at_most == kNoLimit) {
      ready_.wait(lock, something);
    } else if (at_most.count() > 0) {
      ready_.wait_for(lock, at_most, something);
    }
    out.swap(messages_);
    return !(closed_ && out.empty());
  }

  void close() {
    {
      std::lock_guard lock(mutex_);
      closed_ = true;
    }
    ready_.notify_one();
  }

 private:
  std::mutex mutex_;
  std::condition_variable ready_;
  std::vector<Message> messages_;
  bool closed_ = false;
};

}  // namespace octavo
