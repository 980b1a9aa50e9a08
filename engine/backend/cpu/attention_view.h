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

// What queries [i0, i0 + NQ) see of the partition at `start`.
template <int NQ>
struct Seen {
  int lo[NQ], hi[NQ];
  int first = kPartition, last = 0;                // by any
  int common_first = 0, common_last = kPartition;  // by all

  OCTAVO_INLINE Seen(const AttentionTile& t, int i0, int start) {
    for (int i = 0; i < NQ; ++i) {
      lo[i] = t.lo[i0 + i] > start ? t.lo[i0 + i] - start : 0;
      hi[i] = t.hi[i0 + i] - start < kPartition ? t.hi[i0 + i] - start : kPartition;
      if (lo[i] >= hi[i]) lo[i] = hi[i] = 0;
      if (lo[i] < hi[i] && lo[i] < first) first = lo[i];
      if (lo[i] > common_first) common_first = lo[i];
      if (hi[i] > last) last = hi[i];
      if (hi[i] < common_last) common_last = hi[i];
    }
  }
  bool equal() const { return common_first == first && common_last == last; }
};

OCTAVO_INLINE int query_blocks(const AttentionTile& t) { return (t.count + kQueryBlock - 1) / kQueryBlock; }

// One of the heads of a tile.
OCTAVO_INLINE AttentionTile head_of(const AttentionTile& t, int head) {
  AttentionTile one = t;
  const size_t h = head;
  one.heads = 1;
  one.q += h * query_blocks(t) * kQueryBlock * t.k_dim;
  one.m += h * t.count;
  one.l += h * t.count;
  one.o += h * t.count * t.v_dim;
  one.k += h * t.k_head;
  one.v += h * t.v_head;
  return one;
}

// Calls use(head, index, view, fetch, start, from, to) for each of the partitions [first, last) of which any query sees
// a part, which is [from, to) of it, and for each of the tile's heads.
template <class T, class Use>
OCTAVO_INLINE void each_partition(const AttentionTile& t, int first, int last, Use use) {
  int seen_lo = t.lo[0], seen_hi = t.hi[0];
  for (int i = 1; i < t.count; ++i) {
    if (t.lo[i] < seen_lo) seen_lo = t.lo[i];
    if (t.hi[i] > seen_hi) seen_hi = t.hi[i];
  }
  PartitionView<T> view;
  view.block_size = t.block_size;
  view.block_shift = __builtin_ctz(t.block_size);
  for (int i = 0; i < kMaxBlocks; ++i) {
    view.k[i] = reinterpret_cast<const T*>(t.k);
    view.v[i] = reinterpret_cast<const T*>(t.v);
  }
  Fetch fetch(t, sizeof(T));
  for (int p = first; p < last; ++p) {
    const int start = p * kPartition, end = start + kPartition;
    const int from = seen_lo > start ? seen_lo - start : 0, to = seen_hi < end ? seen_hi - start : kPartition;
    if (from >= to) continue;
    for (int h = 0; h < t.heads; ++h) {
      const AttentionTile head = head_of(t, h);
      find_blocks(head, view.block_shift, start, seen_lo, seen_hi, view.k, view.v);
      fetch.enter(start + from, start + to);
      use(head, h, view, fetch, start, from, to);
    }
  }
  fetch.leave();
}

}  // namespace
}  // namespace octavo
