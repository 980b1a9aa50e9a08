#pragma once
#include <cfloat>

#include "backend/cuda/platform.h"
#include "ops/draw_params.h"

// One row of logits and the block that reads it. All sums are of integers, or in an order that the row's length alone
// decides.
namespace octavo::cuda {

using Mass = unsigned long long;
using Key = unsigned long long;

inline constexpr int kDrawThreads = 512;
inline constexpr int kDrawWarps = kDrawThreads / 32;
inline constexpr int kListed = 1024;  // candidates that are kept in shared memory
inline constexpr float kWeightOfMax = 1073741824.0f;
inline constexpr unsigned kAllLanes = 0xffffffffu;

struct DrawScratch {
  Mass reduced[kDrawWarps];
  double reduced_real[kDrawWarps];
  Mass sums[256];
  unsigned counts[256];
  unsigned maxima[kDrawThreads];
  Key keys[kListed];
  unsigned num_keys;
  unsigned floor;
  int bin;
  Mass above;
};

__device__ inline int draw_warp() { return static_cast<int>(threadIdx.x) / 32; }
__device__ inline int draw_lane() { return static_cast<int>(threadIdx.x) % 32; }

// The larger key is the likelier token: the higher logit, then the lower id. -0 counts as 0.
__device__ inline unsigned ordered(float logit) {
  const unsigned bits = __float_as_uint(__fadd_rn(logit, 0.0f));
  return bits & 0x80000000u ? ~bits : bits | 0x80000000u;
}
__device__ inline Key order_key(float logit, int token) {
  return static_cast<Key>(ordered(logit)) << 32 | static_cast<unsigned>(~token);
}
__device__ inline int key_token(Key key) { return ~static_cast<int>(static_cast<unsigned>(key)); }
__device__ inline float key_logit(Key key) {
  const auto bits = static_cast<unsigned>(key >> 32);
  return __uint_as_float(bits & 0x80000000u ? bits & 0x7fffffffu : ~bits);
}

// exp(z) for z <= 0, bit for bit what sample/row_kernels_impl.h computes: nothing may be fused.
__device__ inline float exp_nonpositive(float z) {
  if (!(z >= -80.0f)) return 0.0f;
  constexpr float kRound = 12582912.0f;
  const float k = __fsub_rn(__fadd_rn(__fmul_rn(z, 1.44269504f), kRound), kRound);
  const float r = __fsub_rn(__fsub_rn(z, __fmul_rn(k, 0.693359375f)), __fmul_rn(k, -2.12194440e-4f));
  float p = 1.0f / 5040;
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 720);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 120);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 24);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f / 6);
  p = __fadd_rn(__fmul_rn(p, r), 0.5f);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f);
  p = __fadd_rn(__fmul_rn(p, r), 1.0f);
  return __int_as_float(__float_as_int(p) + (static_cast<int>(k) << 23));
}

struct Weigh {
  float max, scale;
  __device__ unsigned operator()(float logit) const {
    const float w = exp_nonpositive(__fmul_rn(__fsub_rn(logit, max), scale));
    return static_cast<unsigned>(static_cast<int>(__fadd_rn(__fmul_rn(w, kWeightOfMax), 0.5f)));
  }
};

// For every thread.
template <class T, class Fold>
__device__ T reduce_block(T value, T* scratch, Fold fold) {
  for (int lanes = 16; lanes > 0; lanes /= 2) value = fold(value, __shfl_xor_sync(kAllLanes, value, lanes));
  __syncthreads();
  if (draw_lane() == 0) scratch[draw_warp()] = value;
  __syncthreads();
  value = scratch[0];
  for (int warp = 1; warp < kDrawWarps; ++warp) value = fold(value, scratch[warp]);
  return value;
}

__device__ inline Mass sum_block(Mass value, DrawScratch& s) {
  return reduce_block(value, s.reduced, [](Mass a, Mass b) { return a + b; });
}

struct RowMax {
  bool finite;  // neither NaN nor +inf anywhere
  Key key;      // of the likeliest token
};

__device__ inline RowMax scan_row(const float* row, int n, DrawScratch& s) {
  Key best = 0;
  bool bad = false;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kDrawThreads) {
    bad |= !(row[i] <= FLT_MAX);
    const Key key = order_key(row[i], i);
    best = key > best ? key : best;
  }
  best = reduce_block(best, s.reduced, [](Key a, Key b) { return a > b ? a : b; });
  return {__syncthreads_or(bad) == 0, best};
}

// Tokens whose key is at least `floor`: listed in shared memory where they are few, else found in the row.
struct Candidates {
  const float* row;
  int n;
  Key floor;
  bool listed;

  template <class Body>
  __device__ void each(const DrawScratch& s, Body body) const {
    const int count = listed ? static_cast<int>(s.num_keys) : n;
    for (int i = static_cast<int>(threadIdx.x); i < count; i += kDrawThreads) {
      const Key key = listed ? s.keys[i] : order_key(row[i], i);
      if (key >= floor) body(key);
    }
  }
};

__device__ inline Candidates list_candidates(const float* row, int n, Key floor, DrawScratch& s) {
  __syncthreads();
  if (threadIdx.x == 0) s.num_keys = 0;
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kDrawThreads) {
    const Key key = order_key(row[i], i);
    if (key < floor) continue;
    const unsigned at = atomicAdd(&s.num_keys, 1u);
    if (at < kListed) s.keys[at] = key;
  }
  __syncthreads();
  return {row, n, floor, s.num_keys <= kListed};
}

// A key that the k-th best is not below: of the threads' best, the k-th.
__device__ inline Key floor_of_top(const float* row, int n, int k, DrawScratch& s) {
  if (k > kDrawThreads) return 0;
  unsigned own = 0;
  for (int i = static_cast<int>(threadIdx.x); i < n; i += kDrawThreads) own = max(own, ordered(row[i]));
  __syncthreads();
  s.maxima[threadIdx.x] = own;
  __syncthreads();
  int greater = 0, equal = 0;
  for (int i = 0; i < kDrawThreads; ++i) {
    greater += s.maxima[i] > own;
    equal += s.maxima[i] == own;
  }
  if (greater < k && k <= greater + equal) s.floor = own;  // whoever writes, writes the same
  __syncthreads();
  return static_cast<Key>(s.floor) << 32;
}

// Of 256 sums, by descending bin: the one at which they reach `need`. Into s.bin, and what lies above it.
__device__ inline void find_bin(Mass need, DrawScratch& s) {
  if (draw_warp() == 0) {
    constexpr int kBins = 256 / 32;
    const int first = 255 - kBins * draw_lane();
    Mass own = 0;
    for (int i = 0; i < kBins; ++i) own += s.sums[first - i];
    Mass through = own;
    for (int lanes = 1; lanes < 32; lanes *= 2) {
      const Mass before = __shfl_up_sync(kAllLanes, through, lanes);
      if (draw_lane() >= lanes) through += before;
    }
    Mass above = through - own;
    if (above < need && need <= through) {
      int bin = first;
      while (above + s.sums[bin] < need) above += s.sums[bin--];
      s.bin = bin;
      s.above = above;
    }
  }
  __syncthreads();
}

// A key such that the candidates from it on are the fewest of the best whose values add up to `need` at least, those of
// no value apart. `need`: between 1 and the sum of all values. A radix selection, 8 bits at a time.
template <class Value>
__device__ Key cut_at(const Candidates& candidates, Mass need, Value value, DrawScratch& s) {
  Key prefix = 0;
  for (int shift = 56;; shift -= 8) {
    __syncthreads();
    if (threadIdx.x < 256) {
      s.sums[threadIdx.x] = 0;
      s.counts[threadIdx.x] = 0;
    }
    __syncthreads();
    candidates.each(s, [&](Key key) {
      if (shift < 56 && key >> (shift + 8) != prefix) return;
      const Mass v = value(key);
      if (v == 0) return;
      atomicAdd(&s.sums[key >> shift & 255], v);
      atomicAdd(&s.counts[key >> shift & 255], 1u);
    });
    __syncthreads();
    find_bin(need, s);
    need -= s.above;
    prefix = prefix << 8 | static_cast<Key>(s.bin);
    if (shift == 0 || s.sums[s.bin] == need || s.counts[s.bin] == 1)
      return max(prefix << shift, candidates.floor);  // below the floor are tokens that were not looked at
  }
}

__device__ inline Key cut_of_top(const Candidates& candidates, int k, DrawScratch& s) {
  return cut_at(candidates, static_cast<Mass>(k), [](Key) -> Mass { return 1; }, s);
}

}  // namespace octavo::cuda
