#pragma once
// Brings the keys and values that are read next into L2 while others are worked on; included after a vector header.
#include <cstddef>

#include "backend/cpu/attention_kernels.h"

namespace octavo {
namespace {

constexpr int kPartition = 128;
constexpr int kMaxBlocks = kPartition / 8;
constexpr int kLine = 64;

// With few queries the loops wait for memory, and blocks are too short and scattered for the hardware to foresee.
class Fetch {
 public:
  // The blocks of positions [begin, end), which lie in one partition: first their keys, then their values.
  void aim(const AttentionTile& t, const std::byte* k, const std::byte* v, const int32_t* block_table, int begin,
           int end, size_t element) {
    const int shift = __builtin_ctz(t.block_size);
    const int first = begin >> shift;
    blocks_ = begin < end ? ((end - 1) >> shift) + 1 - first : 0;
    for (int b = 0; b < blocks_; ++b) {
      const size_t block = static_cast<size_t>(block_table[first + b]);
      runs_[b] = k + block * t.k_stride;
      runs_[blocks_ + b] = v + block * t.v_stride;
    }
    k_bytes_ = t.k_dim * t.block_size * element;
    v_bytes_ = t.v_dim * t.block_size * element;
    run_ = 0;
    at_ = end_ = nullptr;
    lines_ = blocks_ * static_cast<int>((k_bytes_ + v_bytes_) / kLine);
  }

  // Spreads what is left over about `rounds` rounds of the loops.
  void pace(int rounds) {
    const int steps = rounds / kRounds + 1;
    pace_ = lines_ > 0 ? (lines_ + steps - 1) / steps : 0;
  }

  // Called in every round; works in one of kRounds.
  OCTAVO_INLINE void step(int round) {
    if (round % kRounds == 0 && pace_ > 0) fetch();
  }

 private:
  static constexpr int kRounds = 2;

  OCTAVO_INLINE void fetch() {
    const std::byte* at = at_;
    for (int n = 0; n < pace_; ++n) {
      if (at >= end_) {
        if (run_ == 2 * blocks_) {
          pace_ = lines_ = 0;
          break;
        }
        at = runs_[run_];
        end_ = at + (run_ < blocks_ ? k_bytes_ : v_bytes_);
        ++run_;
      }
      __builtin_prefetch(at, 0, 2);
      at += kLine;
    }
    at_ = at;
    lines_ -= pace_;
  }

  const std::byte* at_ = nullptr;
  const std::byte* end_ = nullptr;
  int pace_ = 0;
  int lines_ = 0;
  int run_ = 0;
  int blocks_ = 0;
  size_t k_bytes_ = 0;
  size_t v_bytes_ = 0;
  const std::byte* runs_[2 * kMaxBlocks];
};

}  // namespace
}  // namespace octavo
