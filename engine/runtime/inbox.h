#pragma once
#include <condition_variable>
#include <mutex>
#include <utility>
#include <vector>

namespace octavo {

// Many producers, one consumer, which takes everything at once and sleeps while there is nothing.
template <class Message>
class Inbox {
 public:
  // False once closed: the message is not taken.
  bool push(Message message) {
    {
      std::lock_guard lock(mutex_);
      if (closed_) return false;
      messages_.push_back(std::move(message));
    }
    ready_.notify_one();
    return true;
  }

  // Swaps what is there into `out` (emptied first). With `block` it waits for a message or for close().
  // Returns false when the inbox is closed and empty.
  bool take(std::vector<Message>& out, bool block) {
    out.clear();
    std::unique_lock lock(mutex_);
    if (block) ready_.wait(lock, [this] { return !messages_.empty() || closed_; });
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
