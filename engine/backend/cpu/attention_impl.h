#pragma once
// Blocks of queries over partitions of keys. Included by one file per instruction set, after its vector header.
#include "backend/cpu/attention_micro.h"
#include "backend/cpu/attention_states.h"

namespace octavo {
namespace {

// Multiplies the vectors [c0, c1) of a row by the scales that follow the `dim` elements of each slot in its block.
template <class T>
OCTAVO_INLINE void multiply_scales(float* row, const T* const* blocks, const PartitionView<T>& view, int dim, int c0,
                                   int c1) {
  const size_t elements = static_cast<size_t>(dim) * view.block_size;
  for (int c = c0; c < c1; ++c) {
    float scales[kLanes];
    for (int n = 0; n < kLanes; n += 8) {  // a block is a multiple of eight
      const int slot = c * kLanes + n;
      const T* after = blocks[slot >> view.block_shift] + elements;
      __builtin_memcpy(scales + n, reinterpret_cast<const float*>(after) + (slot & (view.block_size - 1)), 32);
    }
    store(row + c * kLanes, load(row + c * kLanes) * load(scales));
  }
}

// Queries [i0, i0 + NQ) over the partition that starts at `start`.
template <class T, int NQ>
void query_block(const AttentionTile& t, const PartitionView<T>& view, Fetch& fetch, int i0, int start) {
  const Seen<NQ> seen(t, i0, start);
  const auto& [lo, hi, first, last, seen_first, seen_last] = seen;
  if (first >= last) return;
  float* s = t.scratch;
  float* acc = s + kQueryBlock * kPartition;
  const int ld = (t.v_dim + kLanes - 1) / kLanes * kLanes;
  score_range<T, NQ>(t.q + static_cast<size_t>(i0) * t.k_dim, view, fetch, first / kLanes, (last + kLanes - 1) / kLanes,
                     t.k_dim, s);
  constexpr bool kScales = sizeof(T) == 1;
  const auto vectors = [](int position) { return (position + kLanes - 1) / kLanes; };
  const auto multiply = [&](int i, const T* const* blocks, int dim) {
    multiply_scales(s + i * kPartition, blocks, view, dim, lo[i] / kLanes, vectors(hi[i]));
  };
  if constexpr (kScales) {
    for (int i = 0; i < NQ; ++i) multiply(i, view.k, t.k_dim);
  }
  float m[NQ], l[NQ];
  if (seen.equal()) {
    softmax<NQ>(s, first, last, t.softcap, m, l);
    if constexpr (kScales) {
      for (int i = 0; i < NQ; ++i) multiply(i, view.v, t.v_dim);
    }
    weigh_range<T, NQ>(s, view, fetch, first, last, t.v_dim, acc, ld, true);
  } else {
    for (int i = 0; i < NQ; ++i) {
      if (lo[i] < hi[i]) softmax<1>(s + i * kPartition, lo[i], hi[i], t.softcap, m + i, l + i);
      if constexpr (kScales) multiply(i, view.v, t.v_dim);
    }
    // A value that a query does not see is not even multiplied by 0: it may be NaN. The edges go query by query.
    const bool apart = seen_first > seen_last;
    const int common_first = apart ? last : seen_first, common_last = apart ? last : seen_last;
    for (int i = 0; i < NQ; ++i) {
      const int edge = common_first < hi[i] ? common_first : hi[i];
      weigh_range<T, 1>(s + i * kPartition, view, fetch, lo[i], edge > lo[i] ? edge : lo[i], t.v_dim, acc + i * ld, ld,
                        true);
    }
    weigh_range<T, NQ>(s, view, fetch, common_first, common_last, t.v_dim, acc, ld, false);
    for (int i = 0; i < NQ; ++i) {
      if (common_last < hi[i]) {
        weigh_range<T, 1>(s + i * kPartition, view, fetch, common_last, hi[i], t.v_dim, acc + i * ld, ld, false);
      }
    }
  }
  for (int i = 0; i < NQ; ++i) {
    const int n = i0 + i;
    if (lo[i] < hi[i])
      combine(t.m[n], t.l[n], t.o + static_cast<size_t>(n) * t.v_dim, m[i], l[i], acc + i * ld, t.v_dim);
  }
}

// About how often the loops of one query block go round for `keys` keys.
OCTAVO_INLINE int loop_steps(const AttentionTile& t, int keys) {
  constexpr int kWidest = 4 * kLanes;
  return t.k_dim * ((keys + kWidest - 1) / kWidest) + keys * ((t.v_dim + 4 * kLanes - 1) / (4 * kLanes));
}

template <class T, int NQ = kQueryBlock>
OCTAVO_INLINE void query_block_of(int count, const AttentionTile& t, const PartitionView<T>& view, Fetch& fetch, int i0,
                                  int start) {
  if (count >= NQ) return query_block<T, NQ>(t, view, fetch, i0, start);
  if constexpr (NQ > 1) query_block_of<T, NQ - 1>(count, t, view, fetch, i0, start);
}

template <class T>
void partitions(const AttentionTile& t, int first, int last) {
  each_partition<T>(
      t, first, last,
      [](const AttentionTile& head, int, const PartitionView<T>& view, Fetch& fetch, int start, int from, int to) {
        for (int i = 0; i < head.count; i += kQueryBlock) {
          fetch.pace(loop_steps(head, to - from) * ((head.count - i + kQueryBlock - 1) / kQueryBlock));
          query_block_of<T>(head.count - i, head, view, fetch, i, start);
        }
      });
}

constexpr AttentionKernels kAttentionKernels = {
    {partitions<float>, partitions<F16>, partitions<BF16>, partitions<I8>, partitions<F8>}, combine, finish};

}  // namespace
}  // namespace octavo
