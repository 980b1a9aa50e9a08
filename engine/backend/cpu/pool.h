#pragma once
#include <atomic>
#include <cstddef>
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

// Memory that a worker will read in a later region.
struct Ahead {
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// Fork/join pool. The caller takes part as worker 0. The tiles of a region are dealt out as one run for each worker, in
// a cache line of its own; a worker that has finished its run takes tiles from the ends of the others'. So one that
// lost its core holds back at most the tile it has begun: the caller never waits for one that has not claimed any.
// Equal regions give each worker the same tiles, whose memory is then in its caches. Workers spin for tens of µs after
// a region, then park; so does the caller while a tile is not done. It never yields: that counts as a whole time slice
// used, each time. run() allocates nothing and is called by one thread at a time.
class ThreadPool {
 public:
  explicit ThreadPool(int threads);  // 0: allowed_cpus(); threads - 1 workers are started
  ~ThreadPool();
  ThreadPool(const ThreadPool&) = delete;
  ThreadPool& operator=(const ThreadPool&) = delete;

  int threads() const { return threads_; }

  // Calls body(tile, worker) for every tile in [0, tiles), worker in [0, threads()), and waits for all of them; the
  // tiles of one worker's run ascend. The first exception of a tile is rethrown once the others have ended.
  template <class Body>
  void run(int tiles, Body&& body) {
    run(tiles, body, [](int) { return Ahead{}; });
  }

  // ahead(worker): what the worker may fetch once there is no tile left, until the next region begins.
  template <class Body, class AheadOf>
  void run(int tiles, Body&& body, AheadOf&& ahead) {
    using Plain = std::remove_reference_t<Body>;
    if (tiles <= 0) return;
    const RegionClock clock(watched_);
    if (tiles == 1 || threads_ == 1) {
      for (int tile = 0; tile < tiles; ++tile) body(tile, 0);
      return;
    }
    for (int w = 0; w < threads_; ++w) lanes_[w].ahead = ahead(w);
    run_region(
        tiles, [](void* arg, int tile, int worker) { (*static_cast<Plain*>(arg))(tile, worker); },
        const_cast<void*>(static_cast<const void*>(&body)));
  }

  // Where the worker's run begins when `tiles` are dealt out.
  int first_tile(int tiles, int worker) const {
    return static_cast<int>(static_cast<int64_t>(tiles) * worker / threads_);
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

  // What one worker has to do. The caller fills it while no tile is left; all but `tiles` is read after a claim, which
  // keeps the region alive.
  struct alignas(64) Lane {
    std::atomic<uint64_t> tiles{0};  // first << 32 | end of those not yet claimed
    Function function = nullptr;
    void* arg = nullptr;
    Ahead ahead;
  };

  void run_region(int tiles, Function function, void* arg);
  int work_on_region(int worker, Ahead& ahead);  // tiles done
  static bool claim_first(Lane& lane, int& tile);
  static bool claim_last(Lane& lane, int& tile);
  void run_tile(const Lane& lane, int tile, int worker);
  void worker_main(int worker);
  bool wait_for_region(const Lane& lane, Ahead& ahead);  // false: the pool stops

  int threads_;
  RegionTimes* watched_ = nullptr;
  std::unique_ptr<Lane[]> lanes_;
  alignas(64) std::atomic<uint32_t> done_{0};  // tiles finished by others than the caller, which parks on it
  std::atomic<bool> caller_parked_{false};
  std::atomic_flag failed_;
  std::exception_ptr error_;
  alignas(64) std::atomic<uint32_t> signal_{0};  // counts regions and the stop: what workers park on
  std::atomic<int> parked_{0};
  std::atomic<bool> stop_{false};
  std::vector<std::thread> workers_;
};

}  // namespace octavo
