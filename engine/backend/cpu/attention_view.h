#pragma once
// The blocks of a partition, and how its keys lie in them; included after a vector header.
#include <cstddef>

#include "backend/cpu/attention_fetch.h"
#include "backend/cpu/attention_kernels.h"

namespace octavo {
namespace {

// The blocks of one partition for one KV head.
template <class T>
struct PartitionView {
  const T* k[kMaxBlocks];
  const T* v[kMaxBlocks];

  int block_size;
  int block_shift;
};

// Finds the blocks of the partition at `start` of which any query sees a part: only those, as the table may end there
// and entries before a window may be stale.
template <class T>
OCTAVO_INLINE void find_blocks(const AttentionTile& t, int shift, int start, int seen_lo, int seen_hi, const T** k,
                               const T** v) {
  const int begin = seen_lo > start ? seen_lo : start;
  const int end = seen_hi < start + kPartition ? seen_hi : start + kPartition;
  for (int b = begin >> shift; b << shift < end; ++b) {
    const size_t block = static_cast<size_t>(t.block_table[b]);
    const int place = b - (start >> shift);
    k[place] = reinterpret_cast<const T*>(t.k + block * t.k_stride);
    v[place] = reinterpret_cast<const T*>(t.v + block * t.v_stride);
  }
}

// One dimension of kLanes keys; kSplit: blocks hold half as many, so they lie in two of them.
template <class T, bool kSplit>
struct KeyVector {
  const T* low;
  const T* high;

  KeyVector() = default;
  OCTAVO_INLINE KeyVector(const T* const* blocks, int slot, int block_size, int block_shift)
      : low(blocks[slot >> block_shift] + (slot & (block_size - 1))),
        high(kSplit ? blocks[(slot >> block_shift) + 1] : nullptr) {}
  OCTAVO_INLINE Vec at(size_t offset) const {
    if constexpr (kSplit) return load(low + offset, high + offset);
    return load(low + offset);
  }
};

}  // namespace
}  // namespace octavo
