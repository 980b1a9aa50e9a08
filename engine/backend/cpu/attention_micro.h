#pragma once
// The innermost attention loops, written once on vectors of kLanes floats; included after one of the vector headers.
// Every sum runs in an order that depends on absolute positions alone: a score over d ascending in one accumulator,
// the softmax sum in kLanes lanes by position, the output over positions ascending. Which queries share a call, and how
// many, never matters.
#include <cstddef>

#include "backend/cpu/attention_fetch.h"
#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/attention_softmax.h"
#include "backend/cpu/attention_view.h"
#include "backend/cpu/vec_math.h"

namespace octavo {
namespace {

// acc[i][j] += b[i] * v[j]. The order keeps accumulators and operands together within sixteen registers.
template <int NQ, int NV, class B, class V>
OCTAVO_INLINE void outer_product(Vec (&acc)[NQ][NV], B b_of, V v_of) {
  if constexpr (NQ < NV) {
    Vec b[NQ];
#pragma GCC unroll 8
    for (int i = 0; i < NQ; ++i) b[i] = splat(b_of(i));
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) {
      const Vec v = v_of(j);
#pragma GCC unroll 8
      for (int i = 0; i < NQ; ++i) {
        acc[i][j] = fma(b[i], v, acc[i][j]);
        keep_order(acc[i][j]);  // else all v are loaded first and an accumulator lives in memory
      }
    }
  } else {
    Vec v[NV];
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) v[j] = v_of(j);
#pragma GCC unroll 8
    for (int i = 0; i < NQ; ++i) {
      const Vec b = splat(b_of(i));
#pragma GCC unroll 8
      for (int j = 0; j < NV; ++j) acc[i][j] = fma(b, v[j], acc[i][j]);
    }
  }
}

// NQ queries x NV vectors of keys, from vector `c` of the partition on. s: [NQ, 128]
template <class T, int NQ, int NV, bool kSplit>
OCTAVO_ALONE void score(const float* __restrict q, const PartitionView<T>& view, Fetch& fetch, int c, int k_dim,
                        float* __restrict s) {
  KeyVector<T, kSplit> keys[NV];
  for (int j = 0; j < NV; ++j) {
    const int slot = (c + j) * kLanes;
    keys[j] = {view.k, slot, view.block_size, view.block_shift};
  }
  Vec acc[NQ][NV];
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[i][j] = splat(0.0f);
  const size_t stride = view.block_size;
  size_t offset = 0;
  for (int d = 0; d < k_dim; ++d, offset += stride, q += kQueryBlock) {
    fetch.step(d);
    outer_product<NQ, NV>(acc, [&](int i) { return q[i]; }, [&](int j) { return keys[j].at(offset); });
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) store(s + i * kPartition + (c + j) * kLanes, acc[i][j]);
}

// Scores of the vectors [c0, c1).
template <class T, int NQ>
OCTAVO_INLINE void score_range(const float* q, const PartitionView<T>& view, Fetch& fetch, int c0, int c1, int k_dim,
                               float* s) {
  if constexpr (kLanes > 8) {
    if (view.block_size < kLanes) {
      for (int c = c0; c < c1; ++c) score<T, NQ, 1, true>(q, view, fetch, c, k_dim, s);
      return;
    }
  }
  constexpr int kWide = NQ <= 3 ? 4 : kRegisters / 8;
  int c = c0;
  for (; c + kWide <= c1; c += kWide) score<T, NQ, kWide, false>(q, view, fetch, c, k_dim, s);
  if constexpr (kWide > 2) {
    for (; c + 2 <= c1; c += 2) score<T, NQ, 2, false>(q, view, fetch, c, k_dim, s);
  }
  for (; c < c1; ++c) score<T, NQ, 1, false>(q, view, fetch, c, k_dim, s);
}

// acc[i] += sum of p[i][key] * v[key] over keys [first, last) ascending, for NC vectors of columns at `col`.
template <class T, int NQ, int NC>
OCTAVO_ALONE void weigh(const float* __restrict p, const PartitionView<T>& view, Fetch& fetch, int first, int last,
                        int v_dim, int col, float* __restrict acc, int ld, bool fresh) {
  Vec sum[NQ][NC];
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NC; ++j) sum[i][j] = fresh ? splat(0.0f) : load(acc + i * ld + col + j * kLanes);
  for (int key = first; key < last;) {
    const int slot = key & (view.block_size - 1);
    const size_t row = static_cast<size_t>(slot) * v_dim + col;
    const T* v = view.v[key >> view.block_shift] + row;

    const int rest = view.block_size - slot;
    const int end = key + rest < last ? key + rest : last;
    for (; key < end; ++key, v += v_dim) {
      fetch.step(key);
      outer_product<NQ, NC>(
          sum, [&](int i) { return p[i * kPartition + key]; }, [&](int j) { return load(v + j * kLanes); });
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NC; ++j) store(acc + i * ld + col + j * kLanes, sum[i][j]);
}

// A head whose v_dim is no multiple of kLanes: its last columns, beside zeros. The rows of acc have room for them.
template <class T, int NQ>
OCTAVO_INLINE void weigh_tail(const float* p, const PartitionView<T>& view, int first, int last, int v_dim, int col,
                              float* acc, int ld, bool fresh) {
  Vec sum[NQ];
  for (int i = 0; i < NQ; ++i) sum[i] = fresh ? splat(0.0f) : load(acc + i * ld + col);
  for (int key = first; key < last; ++key) {
    const T* v = view.v[key >> view.block_shift] + static_cast<size_t>(key & (view.block_size - 1)) * v_dim;
    T part[kLanes] = {};
    for (int j = 0; col + j < v_dim; ++j) part[j] = v[col + j];
    const Vec value = load(part);
    for (int i = 0; i < NQ; ++i) sum[i] = fma(splat(p[i * kPartition + key]), value, sum[i]);
  }
  for (int i = 0; i < NQ; ++i) store(acc + i * ld + col, sum[i]);
}

template <class T, int NQ>
OCTAVO_INLINE void weigh_range(const float* p, const PartitionView<T>& view, Fetch& fetch, int first, int last,
                               int v_dim, float* acc, int ld, bool fresh) {
  constexpr int kWide = NQ > 3 ? kRegisters / 8 : NQ > 1 || kLanes > 8 ? 4 : 8;
  int col = 0;
  for (; col + kWide * kLanes <= v_dim; col += kWide * kLanes) {
    weigh<T, NQ, kWide>(p, view, fetch, first, last, v_dim, col, acc, ld, fresh);
  }
  for (; col + kLanes <= v_dim; col += kLanes) weigh<T, NQ, 1>(p, view, fetch, first, last, v_dim, col, acc, ld, fresh);
  if (col < v_dim) weigh_tail<T, NQ>(p, view, first, last, v_dim, col, acc, ld, fresh);
}

}  // namespace
}  // namespace octavo
