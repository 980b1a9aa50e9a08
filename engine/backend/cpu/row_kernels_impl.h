#pragma once
// Functions of one row on eight-lane vectors. Included by one file per instruction set, after its vec8 header.
#include "backend/cpu/row_kernels.h"
#include "backend/cpu/vec_math.h"

namespace octavo {
namespace {

// The last n < 8 elements, zeros after them.
OCTAVO_INLINE Vec load_part(const float* p, int n) {
  float lanes[8] = {};
  for (int i = 0; i < n; ++i) lanes[i] = p[i];
  return load(lanes);
}
OCTAVO_INLINE void store_part(float* p, Vec v, int n) {
  for (int i = 0; i < n; ++i) p[i] = v[i];
}

// Four vectors of partial sums by position, added up in one fixed tree.
void rms_norm(const float* x, const float* weight, float eps, int dim, float* out) {
  Vec sum[4] = {splat(0.0f), splat(0.0f), splat(0.0f), splat(0.0f)};
  int i = 0;
  for (; i + 32 <= dim; i += 32) {
    for (int j = 0; j < 4; ++j) {
      const Vec v = load(x + i + 8 * j);
      sum[j] = fma(v, v, sum[j]);
    }
  }
  for (int j = 0; i < dim; i += 8, ++j) {
    const Vec v = dim - i < 8 ? load_part(x + i, dim - i) : load(x + i);
    sum[j] = fma(v, v, sum[j]);
  }
  const float squares = sum_lanes((sum[0] + sum[1]) + (sum[2] + sum[3]));
  const Vec scale = splat(1.0f / __builtin_sqrtf(squares / static_cast<float>(dim) + eps));
  for (i = 0; i + 8 <= dim; i += 8) store(out + i, load(x + i) * scale * load(weight + i));
  if (i < dim) store_part(out + i, load_part(x + i, dim - i) * scale * load_part(weight + i, dim - i), dim - i);
}

// x * sigmoid(x); the exponential is taken of -|x|, so it never overflows.
OCTAVO_INLINE Vec silu(Vec x) {
  const Vec t = exp2_nonpositive(from_bits(bits(x) & 0x7fffffff) * splat(-kLog2E));
  const Vec one = splat(1.0f);
  return x * (select(x < splat(0.0f), t, one) / (one + t));
}

void silu_mul(const float* gate, const float* up, int dim, float* out) {
  int i = 0;
  for (; i + 8 <= dim; i += 8) store(out + i, silu(load(gate + i)) * load(up + i));
  if (i < dim) store_part(out + i, silu(load_part(gate + i, dim - i)) * load_part(up + i, dim - i), dim - i);
}

constexpr RowKernels kRowKernels{rms_norm, silu_mul};

}  // namespace
}  // namespace octavo
