#pragma once
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <thread>
#include <type_traits>
#include <vector>

#include "base/trace.h"

namespace octavo {

// CPUs this process may use: the affinity mask, cut to the cgroup's quota (rounded up). At least 1.
int allowed_cpus();

// Fork/join pool. The caller takes part as worker 0; tiles are claimed one by one, so a worker that lost its core
// holds back at most the tile it has begun: the caller never waits for one that has not claimed any.
// Workers spin for tens of µs after a region, then park. run() allocates nothing and is called by one thread at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: allowed_cpus(); threads - 1 workers are started
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(tile, worker) for every tile in [0, tiles), worker in [0, threads()), in ascending order of claims, and
  // waits for all of them. The first exception of a tile is rethrown once the others have ended.
  template <class Body>
  void run(int tiles, Body&& body) {
    using Plain = std::remove_reference_t<Body>;
    if (tiles <= 0) return;
    const RegionClock clock(watched_);
    if (tiles == 1 || threads_ == 1) {
      for (int tile = 0; tile < tiles; ++tile) body(tile, 0);
      return;
    }
    run_region(
        tiles, [](void* arg, int tile, int worker) { (*static_cast<Plain*>(arg))(tile, worker); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Where the time of each later region is noted; null: nowhere.
  void watch(RegionTimes* times) { watched_ = times; }

 private:
  class RegionClock {
   public:
    explicit RegionClock(RegionTimes* times) : times_(times), begin_(times ? monotonic_ns() : 0) {}
    ~RegionClock() {
      if (times_) times_->add(monotonic_ns() - begin_);
    }

   private:
    RegionTimes* times_;
    int64_t begin_;
  };
  using Function = void (*)(void* arg, int tile, int worker);

  void run_region(int tiles, Function function, void* arg);
  bool work_on_region(int worker);  // false: nothing was left to claim
  void worker_main(int worker);
  bool wait_for_region(uint32_t seen);  // false: the pool stops

  int threads_;
  RegionTimes* watched_ = nullptr;
  // The region, stable from the store of `ticket_` until all its tiles are done.
  Function function_ = nullptr;
  void* arg_ = nullptr;
  int tiles_ = 0;
  uint32_t region_ = 0;
  alignas(64) std::atomic<uint64_t> ticket_{0};  // region number << 32 | tiles not yet claimed
  alignas(64) std::atomic<int> done_{0};         // tiles finished
  std::atomic_flag failed_;
  std::exception_ptr error_;
  alignas(64) std::atomic<uint32_t> signal_{0};  // counts regions and the stop: what workers park on
  std::atomic<int> parked_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace octavo
