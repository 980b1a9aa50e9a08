#include "backend/cpu/page_warmer.h"

#include <sys/mman.h>

#include <algorithm>
#include <chrono>

#ifndef MADV_POPULATE_WRITE  // Linux 5.14; older kernels refuse it, and then nothing is made ready
#define MADV_POPULATE_WRITE 23
#endif

namespace octavo::cpu {
namespace {

constexpr size_t kPiece = size_t{2} << 20;    // a huge page
constexpr size_t kAhead = size_t{192} << 20;  // beyond the highest use
constexpr auto kQuiet = std::chrono::milliseconds(50);

}  // namespace

PageWarmer::PageWarmer(std::byte* memory, size_t bytes)
    : memory_(memory), bytes_(bytes / kPiece * kPiece), thread_([this] { main(); }) {}

PageWarmer::~PageWarmer() {
  {
    const std::lock_guard lock(mutex_);
    stop_ = true;
  }
  changed_.notify_one();
  thread_.join();
}

void PageWarmer::begin_use(size_t bytes) noexcept {
  in_use_.store(true, std::memory_order_relaxed);
  uses_.fetch_add(1, std::memory_order_relaxed);
  const std::unique_lock lock(mutex_, std::try_to_lock);
  if (!lock) return;  // the next call will do
  resident_ = std::max(resident_, std::min((bytes + kPiece - 1) / kPiece * kPiece, bytes_));
  const size_t target = std::min((bytes + kAhead) / kPiece * kPiece, bytes_);
  if (target <= target_) return;
  const bool had_work = resident_ < target_;  // then it knows, and only waits for quiet
  target_ = target;
  if (!had_work) changed_.notify_one();
}

// Waits until something is to be made resident and nobody has used the memory for a while; false: the end.
bool PageWarmer::wait_for_work(std::unique_lock<std::mutex>& lock) {
  while (!stop_) {
    changed_.wait(lock, [this] { return stop_ || resident_ < target_; });
    const uint64_t uses = uses_.load(std::memory_order_relaxed);
    changed_.wait_for(lock, kQuiet, [this] { return stop_; });
    if (unused_since(uses) && resident_ < target_) break;
  }
  return !stop_;
}

void PageWarmer::main() {
  std::unique_lock lock(mutex_);
  while (wait_for_work(lock)) {
    const uint64_t uses = uses_.load(std::memory_order_relaxed);
    while (!stop_ && resident_ < target_ && unused_since(uses)) {
      const size_t at = resident_;
      lock.unlock();
      // At the priority of the others: it holds the lock that their every mmap and munmap needs, and must not be kept
      // from a busy processor meanwhile.
      const bool done = madvise(memory_ + at, kPiece, MADV_POPULATE_WRITE) == 0;
      lock.lock();
      if (!done) return;  // an old kernel, or no memory: steps touch the pages themselves
      resident_ = std::max(resident_, at + kPiece);
    }
  }
}

}  // namespace octavo::cpu
