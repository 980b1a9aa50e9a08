#pragma once
// The innermost attention loops, written once on eight-lane vectors; included after one of the vec8 headers.
// Every sum runs in an order that depends on absolute positions alone: a score over d ascending in one accumulator,
// the softmax sum in eight lanes by position mod 8, the output over positions ascending. Which queries share a call,
// and how many, never matters.
#include <cstddef>

#include "backend/cpu/attention_kernels.h"
#include "backend/cpu/vec8_math.h"

namespace octavo {
namespace {

constexpr int kPartition = 128;
constexpr int kMaxBlocks = kPartition / 8;
constexpr float kNegInf = -__builtin_inff();
template <class T>
constexpr int kLineVectors = 64 / (8 * sizeof(T));  // vectors in a cache line

// The blocks of one partition for one KV head.
template <class T>
struct PartitionView {
  const T* k[kMaxBlocks];
  const T* v[kMaxBlocks];
  // The same places of the partition after this one (or of this one, at the end): fetched into L2 meanwhile. With few
  // queries the loops wait for memory, and blocks are too short and scattered for the hardware to foresee.
  const T* next_k[kMaxBlocks];
  const T* next_v[kMaxBlocks];
  int block_size;
  int block_shift;
};

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

// NQ queries x NV vectors of eight keys, from vector `c` of the partition on. s: [NQ, 128]
template <class T, int NQ, int NV>
OCTAVO_INLINE void score(const float* __restrict q, const PartitionView<T>& view, int c, int k_dim,
                         float* __restrict s) {
  const T* keys[NV];
  const T* next[NV];
  for (int j = 0; j < NV; ++j) {
    const int slot = (c + j) * 8, block = slot >> view.block_shift, place = slot & (view.block_size - 1);
    keys[j] = view.k[block] + place;
    next[j] = view.next_k[block] + place;
  }
  Vec acc[NQ][NV];
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) acc[i][j] = splat(0.0f);
  const size_t stride = view.block_size;
  size_t offset = 0;
  for (int d = 0; d < k_dim; ++d, offset += stride, q += kQueryBlock) {
#pragma GCC unroll 8
    for (int j = 0; j < NV; j += 2) prefetch(next[j] + offset);
    outer_product<NQ, NV>(acc, [&](int i) { return q[i]; }, [&](int j) { return load(keys[j] + offset); });
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NV; ++j) store(s + i * kPartition + (c + j) * 8, acc[i][j]);
}

// Scores of the vectors [c0, c1).
template <class T, int NQ>
OCTAVO_INLINE void score_range(const float* q, const PartitionView<T>& view, int c0, int c1, int k_dim, float* s) {
  constexpr int kVectors = NQ <= 3 ? 4 : 2;
  int c = c0;
  for (; c + kVectors <= c1; c += kVectors) score<T, NQ, kVectors>(q, view, c, k_dim, s);
  for (; c < c1; ++c) score<T, NQ, 1>(q, view, c, k_dim, s);
}

// Scores to probabilities relative to the partition's maximum; invisible lanes become 0.
OCTAVO_INLINE void softmax(float* s, int lo, int hi, float softcap, float& max_out, float& sum_out) {
  const VecI lane = {0, 1, 2, 3, 4, 5, 6, 7};
  const int c0 = lo / 8, c1 = (hi + 7) / 8;
  if (softcap != 0.0f) {
    for (int c = c0; c < c1; ++c) store(s + c * 8, splat(softcap) * tanh(load(s + c * 8)));
  }
  auto hide = [&](int c) {
    const VecI position = lane + c * 8;
    store(s + c * 8, select((position >= lo) & (position < hi), load(s + c * 8), splat(kNegInf)));
  };
  if (lo % 8) hide(c0);
  if (hi % 8) hide(c1 - 1);
  Vec m8 = load(s + c0 * 8);
  for (int c = c0 + 1; c < c1; ++c) m8 = max(m8, load(s + c * 8));
  const float m = max_lanes(m8);
  const Vec shift = splat(m == kNegInf ? 0.0f : m);
  Vec sum = splat(0.0f);
  for (int c = c0; c < c1; ++c) {
    const Vec p = exp2_nonpositive(load(s + c * 8) - shift);
    store(s + c * 8, p);
    sum = sum + p;
  }
  max_out = m;
  sum_out = sum_lanes(sum);
}

// acc[i] += sum of p[i][key] * v[key] over keys [first, last) ascending, for NC vectors of columns at `col`.
template <class T, int NQ, int NC>
OCTAVO_INLINE void weigh(const float* __restrict p, const PartitionView<T>& view, int first, int last, int v_dim,
                         int col, float* __restrict acc, int ld, bool fresh) {
  Vec sum[NQ][NC];
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NC; ++j) sum[i][j] = fresh ? splat(0.0f) : load(acc + i * ld + col + j * 8);
  for (int key = first; key < last;) {
    const int slot = key & (view.block_size - 1);
    const size_t row = static_cast<size_t>(slot) * v_dim + col;
    const T* v = view.v[key >> view.block_shift] + row;
    const T* next = view.next_v[key >> view.block_shift] + row;
    const int rest = view.block_size - slot;
    const int end = key + rest < last ? key + rest : last;
    for (; key < end; ++key, v += v_dim, next += v_dim) {
#pragma GCC unroll 8
      for (int j = 0; j < NC; j += kLineVectors<T>) prefetch(next + j * 8);
      outer_product<NQ, NC>(
          sum, [&](int i) { return p[i * kPartition + key]; }, [&](int j) { return load(v + j * 8); });
    }
  }
#pragma GCC unroll 8
  for (int i = 0; i < NQ; ++i)
#pragma GCC unroll 8
    for (int j = 0; j < NC; ++j) store(acc + i * ld + col + j * 8, sum[i][j]);
}

// A head whose v_dim is no multiple of 8: its last columns, beside zeros. The rows of acc have room for them.
template <class T, int NQ>
OCTAVO_INLINE void weigh_tail(const float* p, const PartitionView<T>& view, int first, int last, int v_dim, int col,
                              float* acc, int ld, bool fresh) {
  Vec sum[NQ];
  for (int i = 0; i < NQ; ++i) sum[i] = fresh ? splat(0.0f) : load(acc + i * ld + col);
  for (int key = first; key < last; ++key) {
    const T* v = view.v[key >> view.block_shift] + static_cast<size_t>(key & (view.block_size - 1)) * v_dim;
    T part[8] = {};
    for (int j = 0; col + j < v_dim; ++j) part[j] = v[col + j];
    const Vec value = load(part);
    for (int i = 0; i < NQ; ++i) sum[i] = fma(splat(p[i * kPartition + key]), value, sum[i]);
  }
  for (int i = 0; i < NQ; ++i) store(acc + i * ld + col, sum[i]);
}

template <class T, int NQ>
OCTAVO_INLINE void weigh_range(const float* p, const PartitionView<T>& view, int first, int last, int v_dim, float* acc,
                               int ld, bool fresh) {
  constexpr int kColumns = NQ == 1 ? 8 : NQ <= 3 ? 4 : 2;
  int col = 0;
  for (; col + kColumns * 8 <= v_dim; col += kColumns * 8) {
    weigh<T, NQ, kColumns>(p, view, first, last, v_dim, col, acc, ld, fresh);
  }
  for (; col + 8 <= v_dim; col += 8) weigh<T, NQ, 1>(p, view, first, last, v_dim, col, acc, ld, fresh);
  if (col < v_dim) weigh_tail<T, NQ>(p, view, first, last, v_dim, col, acc, ld, fresh);
}

}  // namespace
}  // namespace octavo
