#pragma once
#include <atomic>
#include <condition_variable>
#include <cstddef>
#include <cstdint>
#include <mutex>
#include <thread>

namespace octavo::cpu {

// Memory that is used from its beginning on, ever further: pages ahead of the use are made resident while nobody uses
// it. The first touch of a huge page costs a step 0.2 ms where the system has the page at hand, and 4-5 ms in a virtual
// machine whose host must first find the memory.
class PageWarmer {
 public:
  // memory: from a Buffer, which must outlive this.
  PageWarmer(std::byte* memory, size_t bytes);
  ~PageWarmer();
  PageWarmer(const PageWarmer&) = delete;
  PageWarmer& operator=(const PageWarmer&) = delete;

  // Around each use, which reaches as far as the first `bytes`. Neither waits for pages that are being made resident.
  void begin_use(size_t bytes) noexcept;
  void end_use() noexcept { in_use_.store(false, std::memory_order_relaxed); }

 private:
  void main();
  bool wait_for_work(std::unique_lock<std::mutex>& lock);
  bool unused_since(uint64_t uses) const {
    return !in_use_.load(std::memory_order_relaxed) && uses_.load(std::memory_order_relaxed) == uses;
  }

  std::byte* const memory_;
  const size_t bytes_;
  std::atomic<bool> in_use_{false};
  std::atomic<uint64_t> uses_{0};
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t resident_ = 0;  // under mutex_, like the rest
  size_t target_ = 0;
  bool stop_ = false;
  std::thread thread_;
};

}  // namespace octavo::cpu
