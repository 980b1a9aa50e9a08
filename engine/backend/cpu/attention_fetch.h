#pragma once
// Brings the keys and values that are read next into L2 while others are worked on; included after a vector header.
#include <cstddef>

#include "backend/cpu/attention_kernels.h"

namespace octavo {
namespace {

constexpr int kPartition = 128;
constexpr int kMaxBlocks = kPartition / 8;
constexpr int kLine = 64;

// With few queries the loops wait for memory, and blocks are too short and scattered for the hardware to foresee. So
// what a worker reads next, whatever tile it belongs to, is asked for at the pace at which it works: at the end of each
// partition as many positions beyond it as a whole one has.
class Fetch {
 public:
  Fetch(const AttentionTile& t, size_t element)
      : tile_(t),
        reads_(*t.reads),
        shift_(__builtin_ctz(t.block_size)),
        k_bytes_(t.k_dim * t.block_size * element),
        v_bytes_(t.v_dim * t.block_size * element) {}

  // The worker comes to positions [begin, end), which lie in one partition.
  void enter(int begin, int end) {
    const int block_lines = static_cast<int>((k_bytes_ + v_bytes_) / kLine);
    const int here = (((end - 1) >> shift_) + 1 - (begin >> shift_)) * block_lines;
    reads_.ahead = reads_.ahead > here ? reads_.ahead - here : 0;
    const int wanted = (kPartition >> shift_) * block_lines;
    lines_ = wanted > reads_.ahead ? wanted - reads_.ahead : 0;
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
    const std::byte* at = reads_.at;
    for (int n = 0; n < pace_; ++n) {
      if (at >= reads_.end) {
        if (lines_ <= 0 || !begin_run()) {
          pace_ = lines_ = 0;
          break;
        }
        at = reads_.at;
      }
      __builtin_prefetch(at, 0, 2);
      at += kLine;
    }
    reads_.at = at;
    reads_.ahead += pace_;
    lines_ -= pace_;
  }

  bool begin_run() {
    if (reads_.run == 2 * reads_.blocks && !begin_partition()) return false;
    const bool keys = reads_.run < reads_.blocks;
    const size_t block = reads_.read->block_table[reads_.block + reads_.run - (keys ? 0 : reads_.blocks)];
    reads_.at = keys ? reads_.read->k + block * tile_.k_stride : reads_.read->v + block * tile_.v_stride;
    reads_.end = reads_.at + (keys ? k_bytes_ : v_bytes_);
    ++reads_.run;
    return true;
  }

  bool begin_partition() {
    while (reads_.read != reads_.last && reads_.position >= reads_.read->end) {
      if (++reads_.read != reads_.last) reads_.position = reads_.read->begin;
    }
    if (reads_.read == reads_.last) return false;
    const int end = reads_.position / kPartition * kPartition + kPartition;
    const int last = (end < reads_.read->end ? end : reads_.read->end) - 1;
    reads_.block = reads_.position >> shift_;
    reads_.blocks = (last >> shift_) + 1 - reads_.block;
    reads_.run = 0;
    reads_.position = last + 1;
    return true;
  }

  const AttentionTile& tile_;
  AttentionReads& reads_;
  int shift_;
  size_t k_bytes_;
  size_t v_bytes_;
  int lines_ = 0;  // to ask for
  int pace_ = 0;   // of them in each step
};

}  // namespace
}  // namespace octavo
