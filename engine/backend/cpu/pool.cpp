#include "backend/cpu/pool.h"

#include <linux/futex.h>
#include <sched.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <chrono>
#include <climits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWorkerSpin = std::chrono::microseconds(50);
constexpr auto kCallerSpin = std::chrono::microseconds(20);

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Polls `ready` for about `limit`; looks at the clock only now and then.
template <class Ready, class Duration>
bool spin_until(Ready ready, Duration limit) {
  for (int i = 0; i < 64; ++i) {
    if (ready()) return true;
    relax();
  }
  const auto deadline = Clock::now() + limit;
  do {
    for (int i = 0; i < 32; ++i) {
      if (ready()) return true;
      relax();
    }
  } while (Clock::now() < deadline);
  return false;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ThreadPool::ThreadPool(int threads) : threads_(threads > 0 ? threads : allowed_cpus()) {
  workers_.reserve(threads_ - 1);
  for (int i = 1; i < threads_; ++i) workers_.emplace_back([this, i] { worker_main(i); });
}

ThreadPool::~ThreadPool() {
  stop_.store(true);
  signal_.fetch_add(1);
  futex_wake_all(signal_);
  for (auto& worker : workers_) worker.join();
}

void ThreadPool::run_region(int tiles, Function function, void* arg) {
  function_ = function;
  arg_ = arg;
  tiles_ = tiles;
  done_.store(0, std::memory_order_relaxed);
  ticket_.store(uint64_t{++region_} << 32 | static_cast<uint32_t>(tiles), std::memory_order_release);
  signal_.fetch_add(1);  // sequentially consistent: ordered before the load of parked_
  if (parked_.load()) futex_wake_all(signal_);
  while (work_on_region(0)) {
  }
  auto all_done = [&] { return done_.load(std::memory_order_acquire) == tiles; };
  if (!spin_until(all_done, kCallerSpin)) {
    while (!all_done()) sched_yield();
  }
  if (error_) {
    std::exception_ptr error = std::move(error_);
    error_ = nullptr;
    failed_.clear();
    std::rethrow_exception(error);
  }
}

bool ThreadPool::work_on_region(int worker) {
  uint64_t ticket = ticket_.load(std::memory_order_acquire);
  do {
    if (static_cast<uint32_t>(ticket) == 0) return false;
  } while (!ticket_.compare_exchange_weak(ticket, ticket - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  // The claim keeps the region alive, so its description may be read now and not before.
  const int tile = tiles_ - static_cast<int>(static_cast<uint32_t>(ticket));
  try {
    function_(arg_, tile, worker);
  } catch (...) {
    if (!failed_.test_and_set()) error_ = std::current_exception();
  }
  done_.fetch_add(1, std::memory_order_release);
  return true;
}

bool ThreadPool::wait_for_region(uint32_t seen) {
  auto changed = [&] { return signal_.load(std::memory_order_acquire) != seen; };
  while (!spin_until(changed, kWorkerSpin)) {
    parked_.fetch_add(1);
    while (signal_.load() == seen) futex_wait(signal_, seen);
    parked_.fetch_sub(1);
  }
  return !stop_.load();
}

void ThreadPool::worker_main(int worker) {
  uint32_t seen = 0;
  while (wait_for_region(seen)) {
    seen = signal_.load(std::memory_order_acquire);
    while (work_on_region(worker)) {
    }
  }
}

}  // namespace octavo
