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

// x * (1 + tanh(sqrt(2 / pi) * (x + 0.044715 x^3))) / 2
OCTAVO_INLINE Vec gelu_tanh(Vec x) {
  const Vec inner = splat(0.7978845608028654f) * x * fma(splat(0.044715f) * x, x, splat(1.0f));
  return splat(0.5f) * x * (splat(1.0f) + tanh(inner));
}

// out = f(a, b) element by element
template <class F>
OCTAVO_INLINE void map(const float* a, const float* b, int dim, float* out, F f) {
  int i = 0;
  for (; i + 8 <= dim; i += 8) store(out + i, f(load(a + i), load(b + i)));
  if (i < dim) store_part(out + i, f(load_part(a + i, dim - i), load_part(b + i, dim - i)), dim - i);
}

void silu_mul(const float* gate, const float* up, int dim, float* out) {
  map(gate, up, dim, out, [](Vec g, Vec u) { return silu(g) * u; });
}

void gelu_tanh_mul(const float* gate, const float* up, int dim, float* out) {
  map(gate, up, dim, out, [](Vec g, Vec u) { return gelu_tanh(g) * u; });
}

void clamped_silu_mul(const float* gate, const float* up, int dim, float* out) {
  map(gate, up, dim, out, [](Vec g, Vec u) {
    const Vec limit = splat(7.0f), alpha = splat(1.702f);
    const Vec kept = select(g > limit, limit, g);
    const Vec bounded = select(u > limit, limit, select(u < -limit, -limit, u));
    return silu(kept * alpha) / alpha * (bounded + splat(1.0f));
  });
}

void add_scaled(float* x, const float* y, float scale, int dim) {
  map(x, y, dim, x, [scale](Vec a, Vec b) { return fma(splat(scale), b, a); });
}

void scale_and_cap(float* x, float scale, float cap, int dim) {
  if (cap == 0.0f) {
    map(x, x, dim, x, [scale](Vec a, Vec) { return a * splat(scale); });
  } else {
    map(x, x, dim, x, [scale, cap](Vec a, Vec) { return splat(cap) * tanh(a * splat(scale) / splat(cap)); });
  }
}

constexpr RowKernels kRowKernels{rms_norm, silu_mul, gelu_tanh_mul, clamped_silu_mul, add_scaled, scale_and_cap};

}  // namespace
}  // namespace octavo
