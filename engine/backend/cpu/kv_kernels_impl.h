#pragma once
// Rotation and cache writes on eight-lane vectors. Included by one file per instruction set, after its vec8 header.
#include <cstddef>

#include "backend/cpu/kv_kernels.h"
#include "backend/cpu/vec_math.h"

namespace octavo {
namespace {

void rotate(float* x, const float* cos_sin, int rotary_dim) {
  const int half = rotary_dim / 2;
  int i = 0;
  for (; i + 8 <= half; i += 8) {
    const Vec c = load(cos_sin + i), s = load(cos_sin + half + i);
    const Vec a = load(x + i), b = load(x + half + i);
    store(x + i, fma(a, c, -(b * s)));
    store(x + half + i, fma(b, c, a * s));
  }
  for (; i < half; ++i) {
    const float c = cos_sin[i], s = cos_sin[half + i], a = x[i], b = x[half + i];
    x[i] = fma(a, c, -(b * s));
    x[half + i] = fma(b, c, a * s);
  }
}

OCTAVO_INLINE void store(BF16* p, Vec v) {
  using Unsigned = uint32_t __attribute__((vector_size(32)));
  const Unsigned u = reinterpret_cast<Unsigned>(v);
  const VecI nan = v != v;
  const Unsigned rounded = (u + 0x7fffu + ((u >> 16) & 1u)) >> 16;
  const VecI kept = (nan & reinterpret_cast<VecI>((u >> 16) | 0x40u)) | (~nan & reinterpret_cast<VecI>(rounded));
  for (int i = 0; i < 8; ++i) p[i].bits = static_cast<uint16_t>(kept[i]);
}

template <class T>
void store_strided(const float* x, int dim, std::byte* out, size_t stride) {
  T* to = reinterpret_cast<T*>(out);
  for (int i = 0; i < dim; i += 8) {
    const int n = dim - i < 8 ? dim - i : 8;
    float part[8] = {};
    T converted[8];
    for (int j = 0; j < n; ++j) part[j] = x[i + j];
    store(converted, load(part));
    for (int j = 0; j < n; ++j) to[(i + j) * stride] = converted[j];
  }
}

template <class T>
void store_kv(const float* x, int dim, std::byte* out, size_t stride) {
  if (stride != 1) return store_strided<T>(x, dim, out, stride);
  T* to = reinterpret_cast<T*>(out);
  int i = 0;
  for (; i + 8 <= dim; i += 8) store(to + i, load(x + i));
  if (i < dim) store_strided<T>(x + i, dim - i, reinterpret_cast<std::byte*>(to + i), 1);
}

constexpr KvKernels kKvKernels{rotate, {store_kv<float>, store_kv<F16>, store_kv<BF16>}};

}  // namespace
}  // namespace octavo
