#pragma once
// The passes of row_kernels.h in the compiler's vector type. Each instruction set's source includes this once and is
// compiled with that set's flags; everything has internal linkage, so no other set's code can leak in.
#include <cfloat>
#include <cmath>
#include <cstring>

#include "sample/row_kernels.h"

namespace octavo {
namespace {

constexpr int kLanes = 8;
using F8 = float __attribute__((vector_size(32)));
using I8 = int32_t __attribute__((vector_size(32)));
using U4x64 = uint64_t __attribute__((vector_size(32)));

#define OCTAVO_INLINE __attribute__((always_inline)) inline

OCTAVO_INLINE F8 load(const float* p) {
  F8 v;
  std::memcpy(&v, p, sizeof v);
  return v;
}

OCTAVO_INLINE F8 splat(float v) { return F8{} + v; }

OCTAVO_INLINE float max_lane(F8 v) {
  v = [](F8 a, F8 b) { return a > b ? a : b; }(v, __builtin_shufflevector(v, v, 4, 5, 6, 7, 0, 1, 2, 3));
  const F8 half = __builtin_shufflevector(v, v, 2, 3, 0, 1, 6, 7, 4, 5);
  v = v > half ? v : half;
  return v[0] > v[1] ? v[0] : v[1];
}

// exp(z) for z <= 0 within 2 ulp; 0 below -80. Cody-Waite reduction and the Taylor series to the 7th power.
OCTAVO_INLINE F8 exp_nonpositive(F8 z) {
  const I8 in_range = z >= -80.0f;
  const F8 x = in_range ? z : splat(-80.0f);
  constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: adding it rounds to an integer
  const F8 k = (x * 1.44269504f + kRound) - kRound;
  const F8 r = (x - k * 0.693359375f) - k * -2.12194440e-4f;
  F8 p = splat(1.0f / 5040);
  p = p * r + 1.0f / 720;
  p = p * r + 1.0f / 120;
  p = p * r + 1.0f / 24;
  p = p * r + 1.0f / 6;
  p = p * r + 0.5f;
  p = p * r + 1.0f;
  p = p * r + 1.0f;
  I8 bits;
  std::memcpy(&bits, &p, sizeof bits);
  bits += __builtin_convertvector(k, I8) << 23;
  std::memcpy(&p, &bits, sizeof p);
  return in_range ? p : F8{};
}

// A whole block: the row's own memory, or its end padded with -inf.
struct Block {
  alignas(32) float tail[kScanBlock];
  OCTAVO_INLINE const float* at(const float* x, int n, int first) {
    if (n - first >= kScanBlock) return x + first;
    for (int i = 0; i < kScanBlock; ++i) tail[i] = first + i < n ? x[first + i] : -INFINITY;
    return tail;
  }
};

RowScan scan(const float* x, int n, float* block_max) {
  Block block;
  I8 bad = {};
  for (int first = 0; first < n; first += kScanBlock) {
    const float* p = block.at(x, n, first);
    F8 best = splat(-INFINITY);
#pragma GCC unroll 8
    for (int i = 0; i < kScanBlock; i += kLanes) {
      const F8 v = load(p + i);
      bad |= ~(v <= FLT_MAX);
      best = v > best ? v : best;
    }
    block_max[first / kScanBlock] = max_lane(best);
  }
  RowScan result{.max = -INFINITY, .finite = true};
  for (int lane = 0; lane < kLanes; ++lane) result.finite &= bad[lane] == 0;
  for (int b = 0; b < num_scan_blocks(n); ++b) result.max = block_max[b] > result.max ? block_max[b] : result.max;
  return result;
}

double sum_exp(const float* x, int n, float max) {
  Block block;
  double total = 0.0;
  for (int first = 0; first < n; first += kScanBlock) {
    const float* p = block.at(x, n, first);
    F8 sum = {};
#pragma GCC unroll 2
    for (int i = 0; i < kScanBlock; i += kLanes) sum += exp_nonpositive(load(p + i) - max);
    total += ((double{sum[0]} + sum[1]) + (double{sum[2]} + sum[3])) +
             ((double{sum[4]} + sum[5]) + (double{sum[6]} + sum[7]));
  }
  return total;
}

uint64_t weigh(const float* x, int n, float max, float scale, uint32_t* weights, uint64_t* block_mass) {
  Block block;
  uint64_t total = 0;
  for (int first = 0; first < n; first += kScanBlock) {
    const float* p = block.at(x, n, first);
    alignas(32) uint32_t block_weights[kScanBlock];
    U4x64 sum = {};
#pragma GCC unroll 2
    for (int i = 0; i < kScanBlock; i += kLanes) {
      const F8 w = exp_nonpositive((load(p + i) - max) * scale);
      const I8 q = __builtin_convertvector(w * kWeightOne + 0.5f, I8);
      std::memcpy(block_weights + i, &q, sizeof q);
      U4x64 pairs;
      std::memcpy(&pairs, &q, sizeof pairs);
      sum += (pairs & 0xFFFFFFFFu) + (pairs >> 32);
    }
    const int count = n - first < kScanBlock ? n - first : kScanBlock;
    std::memcpy(weights + first, block_weights, count * sizeof(uint32_t));
    const uint64_t mass = sum[0] + sum[1] + sum[2] + sum[3];
    if (block_mass) block_mass[first / kScanBlock] = mass;
    total += mass;
  }
  return total;
}

int count_greater(const float* x, int n, float value) {
  I8 count = {};
  int i = 0;
  for (; i + kLanes <= n; i += kLanes) count -= load(x + i) > value;
  int total = 0;
  for (int lane = 0; lane < kLanes; ++lane) total += count[lane];
  for (; i < n; ++i) total += x[i] > value;
  return total;
}

#undef OCTAVO_INLINE

}  // namespace
}  // namespace octavo
