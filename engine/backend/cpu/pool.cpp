#include "backend/cpu/pool.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <climits>

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace octavo {
namespace {

using Clock = std::chrono::steady_clock;
constexpr auto kWorkerSpin = std::chrono::microseconds(50);
constexpr auto kCallerSpin = std::chrono::microseconds(500);  // longer than most tiles

void relax() {
#if defined(__x86_64__)
  _mm_pause();
#elif defined(__aarch64__)
  asm volatile("yield");
#endif
}

// Fetches a few cache lines of `ahead`; false: nothing is left of it.
bool fetch(Ahead& ahead) {
  constexpr size_t kLine = 64, kStep = 8 * kLine;  // few, so that a region that begins meanwhile is noticed soon
  if (ahead.bytes == 0) return false;
  const size_t step = std::min(ahead.bytes, kStep);
  for (size_t i = 0; i < step; i += kLine) __builtin_prefetch(ahead.data + i, 0, 2);
  ahead.data += step;
  ahead.bytes -= step;
  return true;
}

// Polls `ready` for about `limit` and fetches ahead meanwhile; looks at the clock only now and then.
template <class Ready, class Duration>
bool spin_until(Ready ready, Duration limit, Ahead& ahead) {
  while (!ready()) {
    if (fetch(ahead)) continue;
    const auto deadline = Clock::now() + limit;
    do {
      for (int i = 0; i < 64; ++i) {
        if (ready()) return true;
        relax();
      }
    } while (Clock::now() < deadline);
    return false;
  }
  return true;
}

void futex_wait(std::atomic<uint32_t>& word, uint32_t expected) {
  syscall(SYS_futex, &word, FUTEX_WAIT_PRIVATE, expected, nullptr, nullptr, 0);
}
void futex_wake_all(std::atomic<uint32_t>& word) {
  syscall(SYS_futex, &word, FUTEX_WAKE_PRIVATE, INT_MAX, nullptr, nullptr, 0);
}

}  // namespace

ThreadPool::ThreadPool(int threads)
    : threads_(threads > 0 ? threads : allowed_cpus()), lanes_(std::make_unique<Lane[]>(threads_)) {
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
  done_.store(0, std::memory_order_relaxed);
  for (int w = threads_ - 1; w >= 0; --w) {  // the caller's own last: the others begin meanwhile
    Lane& lane = lanes_[w];
    lane.function = function;
    lane.arg = arg;
    lane.tiles.store(
        static_cast<uint64_t>(first_tile(tiles, w)) << 32 | static_cast<uint32_t>(first_tile(tiles, w + 1)),
        std::memory_order_release);
  }
  signal_.fetch_add(1);  // sequentially consistent: ordered before the load of parked_
  if (parked_.load()) futex_wake_all(signal_);
  Ahead ahead = lanes_[0].ahead;
  const auto others = static_cast<uint32_t>(tiles - work_on_region(0, ahead));
  auto all_done = [&] { return done_.load(std::memory_order_acquire) == others; };
  if (!spin_until(all_done, kCallerSpin, ahead)) {
    caller_parked_.store(true);
    for (uint32_t seen; (seen = done_.load()) != others;) futex_wait(done_, seen);
    caller_parked_.store(false, std::memory_order_relaxed);
  }
  if (error_) {
    std::exception_ptr error = std::move(error_);
    error_ = nullptr;
    failed_.clear();
    std::rethrow_exception(error);
  }
}

// A claim succeeds only on a region that is alive, whatever the lane held when it was looked at.
bool ThreadPool::claim_first(Lane& lane, int& tile) {
  uint64_t tiles = lane.tiles.load(std::memory_order_acquire);
  do {
    tile = static_cast<int>(tiles >> 32);
    if (tile >= static_cast<int>(static_cast<uint32_t>(tiles))) return false;
  } while (!lane.tiles.compare_exchange_weak(tiles, tiles + (uint64_t{1} << 32), std::memory_order_acq_rel,
                                             std::memory_order_acquire));
  return true;
}

bool ThreadPool::claim_last(Lane& lane, int& tile) {
  uint64_t tiles = lane.tiles.load(std::memory_order_acquire);
  do {
    tile = static_cast<int>(static_cast<uint32_t>(tiles)) - 1;
    if (tile < static_cast<int>(tiles >> 32)) return false;
  } while (!lane.tiles.compare_exchange_weak(tiles, tiles - 1, std::memory_order_acq_rel, std::memory_order_acquire));
  return true;
}

void ThreadPool::run_tile(const Lane& lane, int tile, int worker) {
  try {
    lane.function(lane.arg, tile, worker);
  } catch (...) {
    if (!failed_.test_and_set()) error_ = std::current_exception();
  }
}

int ThreadPool::work_on_region(int worker, Ahead& ahead) {
  int count = 0, tile;
  while (claim_first(lanes_[worker], tile)) {
    ahead = lanes_[worker].ahead;
    run_tile(lanes_[worker], tile, worker);
    ++count;
  }
  for (int i = 1; i < threads_; ++i) {
    Lane& lane = lanes_[(worker + i) % threads_];
    while (claim_last(lane, tile)) {
      run_tile(lane, tile, worker);
      ++count;
    }
  }
  return count;
}

bool ThreadPool::wait_for_region(const Lane& lane, Ahead& ahead) {
  auto begun = [&] {
    const uint64_t tiles = lane.tiles.load(std::memory_order_acquire);
    return static_cast<uint32_t>(tiles >> 32) < static_cast<uint32_t>(tiles) || stop_.load(std::memory_order_relaxed);
  };
  while (!spin_until(begun, kWorkerSpin, ahead)) {
    parked_.fetch_add(1);
    const uint32_t seen = signal_.load();
    if (!begun()) futex_wait(signal_, seen);
    parked_.fetch_sub(1);
  }
  return !stop_.load();
}

void ThreadPool::worker_main(int worker) {
  Ahead ahead;
  while (wait_for_region(lanes_[worker], ahead)) {
    const int count = work_on_region(worker, ahead);
    if (count == 0) continue;
    done_.fetch_add(static_cast<uint32_t>(count));  // sequentially consistent: ordered before the load
    if (caller_parked_.load()) futex_wake_all(done_);
  }
}

}  // namespace octavo
