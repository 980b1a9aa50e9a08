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
  Fetch(const Fetch&) = delete;
  Fetch& operator=(const Fetch&) = delete;

  // Leaves to the worker's next tile how far it has come.
  void leave() {
    settle();
    *tile_.reads = reads_;
  }

  // The worker comes to positions [begin, end) of a head, which lie in one partition.
  void enter(int begin, int end) {
    settle();
    const int block_lines = static_cast<int>((k_bytes_ + v_bytes_) / kLine);
    const int here = (((end - 1) >> shift_) + 1 - (begin >> shift_)) * block_lines;
    reads_.ahead = reads_.ahead > here ? reads_.ahead - here : 0;
    lines_ = (kPartition >> shift_) * block_lines - reads_.ahead;
  }

  // Spreads what is left over about `rounds` rounds of the loops.
  void pace(int rounds) {
    settle();
    const int period = lines_ > 0 ? rounds * kLinesAtOnce / lines_ : 0;
    mask_ = lines_ <= 0 ? kNever : period > 1 ? (1 << (31 - __builtin_clz(period))) - 1 : 0;
  }

  // Called in every round, from 0 or any other number on; works in one of a power of two.
  OCTAVO_INLINE void step(int round) {
    if ((round & mask_) != 0) return;
    if (granted_ <= 0 && !grant()) return;
#pragma GCC unroll 8
    for (int i = 0; i < kLinesAtOnce; ++i) __builtin_prefetch(reads_.at + i * kLine, 0, 2);
    reads_.at += kLinesAtOnce * kLine;
    granted_ -= kLinesAtOnce;
  }

 private:
  static constexpr int kLinesAtOnce = kLanes > 8 ? 4 : 2;  // past the end of a run some more: no harm
  static constexpr int kNever = ~0;

  // Counts what has been asked for.
  void settle() {
    const int done = taken_ - granted_;
    reads_.ahead += done;
    lines_ -= done;
    taken_ = granted_ = 0;
  }

  // Lines that lie in a row; false: there is nothing to ask for.
  __attribute__((noinline)) bool grant() {
    settle();
    while (lines_ > 0) {
      const int run = static_cast<int>((reads_.end - reads_.at + kLine - 1) / kLine);
      if (run > 0) {
        taken_ = granted_ = run < lines_ ? run : lines_;
        return true;
      }
      if (!begin_run()) lines_ = 0;
    }
    mask_ = kNever;
    return false;
  }

  bool begin_run() {
    if (reads_.run == 2 * reads_.blocks && !begin_head()) return false;
    const AttentionRead& read = *reads_.read;
    const bool keys = reads_.run < reads_.blocks;
    const size_t block = read.block_table[reads_.block + reads_.run - (keys ? 0 : reads_.blocks)];
    reads_.at = keys ? read.k + reads_.head * tile_.k_head + block * tile_.k_stride
                     : read.v + reads_.head * tile_.v_head + block * tile_.v_stride;
    reads_.end = reads_.at + (keys ? k_bytes_ : v_bytes_);
    ++reads_.run;
    return true;
  }

  // The next head of the partition, or the first of the next one.
  bool begin_head() {
    reads_.run = 0;
    if (reads_.blocks > 0 && ++reads_.head < reads_.read->heads) return true;
    reads_.head = reads_.blocks = 0;
    while (reads_.read != reads_.last && reads_.position >= reads_.read->end) {
      if (++reads_.read != reads_.last) reads_.position = reads_.read->begin;
    }
    if (reads_.read == reads_.last) return false;
    const int end = reads_.position / kPartition * kPartition + kPartition;
    const int last = (end < reads_.read->end ? end : reads_.read->end) - 1;
    reads_.block = reads_.position >> shift_;
    reads_.blocks = (last >> shift_) + 1 - reads_.block;
    reads_.position = last + 1;
    return true;
  }

  const AttentionTile& tile_;
  AttentionReads reads_;
  int shift_;
  size_t k_bytes_;
  size_t v_bytes_;
  int lines_ = 0;    // to ask for
  int granted_ = 0;  // of those taken at last
  int taken_ = 0;
  int mask_ = kNever;  // of a round: works where it is 0
};

}  // namespace
}  // namespace octavo
