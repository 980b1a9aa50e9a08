#pragma once
// One thread block at a time: its threads are fibers of the calling host thread, which meet at barriers and in
// collective operations of their warp. Between two meetings each lane runs alone, in an order that a seed permutes, so
// a kernel that lacks a barrier computes different results under different seeds.
#include <cstddef>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <functional>
#include <memory>
#include <vector>

#include "backend/cuda/emulator/fiber.h"
#include "backend/cuda/emulator/vector_types.h"

namespace octavo::emulator {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kFullMask = 0xffffffffu;

// The source line of a barrier or collective: lanes that meet must come from the same one.
struct Site {
  const char* file;
  int line;
  bool operator==(const Site& other) const {
    return line == other.line && (file == other.file || std::strcmp(file, other.file) == 0);
  }
};
#define OCTAVO_SITE_PARAMS const char *file = __builtin_FILE(), int line = __builtin_LINE()
#define OCTAVO_SITE (::octavo::emulator::Site{file, line})

// What the lanes of a warp bring to a collective and take from it.
struct Exchange {
  static constexpr size_t kBytes = 64;
  alignas(16) std::byte operand[kBytes];
  alignas(16) std::byte result[kBytes];
};

// Computes the results of all lanes of `mask` from their operands.
using Resolve = void (*)(Exchange* const* lanes, unsigned mask);

struct AsyncCopy {
  void* to;
  const void* from;
  size_t bytes;
  size_t filled;  // of the bytes, those that are copied; zeros after them
};

class Block;

// A CUDA thread.
struct Lane {
  enum class State : uint8_t { kReady, kAtBarrier, kInCollective, kDone };

  Fiber fiber;
  State state = State::kReady;
  Site site{"", 0};
  Resolve resolve = nullptr;
  unsigned mask = 0;  // of the collective
  int value = 0;      // brought to a block barrier
  dim3 thread;
  unsigned index = 0;  // in the block
  Exchange exchange;
  std::vector<std::vector<AsyncCopy>> copies;  // committed groups, oldest first
  std::vector<AsyncCopy> open_copies;
};

struct BarrierVotes {
  int any = 0, all = 1, count = 0;
};

struct Free {
  void operator()(std::byte* memory) const { std::free(memory); }
};

class Block {
 public:
  struct Shape {
    dim3 grid, block;
    size_t shared_bytes = 0;
    unsigned seed = 0;
    const char* kernel = "";
  };

  static Block& current();
  void run_grid(const Shape& shape, const std::function<void()>& body);

  // Called by the kernel's threads.
  Lane& lane() { return *lane_; }
  const dim3& block_index() const { return index_; }
  const Shape& shape() const { return shape_; }
  BarrierVotes barrier(int value, Site site);
  template <class Result, class Operand>
  Result collective(unsigned mask, const Operand& operand, Resolve resolve, Site site) {
    static_assert(sizeof(Operand) <= Exchange::kBytes && sizeof(Result) <= Exchange::kBytes);
    Lane& self = *lane_;
    std::memcpy(self.exchange.operand, &operand, sizeof operand);
    meet(mask, resolve, site);
    Result result;
    std::memcpy(&result, self.exchange.result, sizeof result);
    return result;
  }
  std::byte* dynamic_shared() { return dynamic_.get(); }
  // Copies may land as late as the wait, or at once: the seed decides, a correct kernel cannot tell.
  void copy_async(const AsyncCopy& copy);
  void commit_copies();
  void wait_copies(size_t groups_left);
  [[noreturn]] void fail(const char* what) const;

 private:
  void run_block();
  void run_lane(Lane& lane);
  bool run_warp(unsigned warp);
  bool release_collective(unsigned first, unsigned last);
  bool release_barrier();
  void meet(unsigned mask, Resolve resolve, Site site);
  void leave();
  unsigned random(unsigned below);
  void shuffle(std::vector<unsigned>& order);
  [[noreturn]] void fail_stuck();
  static void lane_main(void* lane);

  Shape shape_;
  const std::function<void()>* body_ = nullptr;
  Fiber host_;
  FiberStacks stacks_;
  std::vector<std::unique_ptr<Lane>> lanes_;
  std::unique_ptr<std::byte, Free> dynamic_;
  unsigned threads_ = 0;
  unsigned done_ = 0;
  Lane* lane_ = nullptr;
  dim3 index_;
  BarrierVotes votes_;
  uint64_t random_ = 0;
  std::vector<unsigned> warp_order_, lane_order_;
};

}  // namespace octavo::emulator
