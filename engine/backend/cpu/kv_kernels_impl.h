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
  T converted[8];
  int i = 0;
  for (; i + 8 <= dim; i += 8, to += 8 * stride) {
    store(converted, load(x + i));
#pragma GCC unroll 8
    for (int j = 0; j < 8; ++j) to[j * stride] = converted[j];
  }
  float part[8] = {};
  for (int j = 0; j < dim - i; ++j) part[j] = x[i + j];
  store(converted, load(part));
  for (int j = 0; j < dim - i; ++j) to[j * stride] = converted[j];
}

template <class T>
void store_kv(const float* x, int dim, std::byte* out, size_t stride) {
  if (stride != 1) return store_strided<T>(x, dim, out, stride);
  T* to = reinterpret_cast<T*>(out);
  int i = 0;
  for (; i + 8 <= dim; i += 8) store(to + i, load(x + i));
  if (i < dim) store_strided<T>(x + i, dim - i, reinterpret_cast<std::byte*>(to + i), 1);
}

// Nearest, ties to even; |x| <= 448.
OCTAVO_INLINE uint8_t to_e4m3(float x) {
  uint32_t u;
  __builtin_memcpy(&u, &x, sizeof u);
  const uint32_t sign = u >> 24 & 0x80;
  u &= 0x7fffffff;
  if (u < 0x3c800000u) {  // below 2^-6: multiples of 2^-9
    float magnitude;
    __builtin_memcpy(&magnitude, &u, sizeof u);
    return static_cast<uint8_t>(sign | static_cast<uint32_t>(__builtin_rintf(magnitude * 512.0f)));
  }
  return static_cast<uint8_t>(sign | (((u + 0x7ffff + (u >> 20 & 1)) >> 20) - 960));
}

struct ToI8 {
  static constexpr float kLimit = 127.0f, kUnit = 1.0f;
  static OCTAVO_INLINE uint8_t convert(float x) { return static_cast<uint8_t>(static_cast<int>(__builtin_rintf(x))); }
};
struct ToF8 {
  static constexpr float kLimit = 448.0f, kUnit = 256.0f;  // what the element lacks, see kv_head_bytes
  static OCTAVO_INLINE uint8_t convert(float x) { return to_e4m3(x); }
};

template <class To>
void store_scaled(const float* x, int dim, std::byte* out, size_t stride, float* scale) {
  float max = 0.0f;
  for (int i = 0; i < dim; ++i) {
    const float magnitude = __builtin_fabsf(x[i]);
    if (!(magnitude <= max)) max = magnitude;  // a NaN stays
    if (max != max) break;
  }
  const float inverse = max > 1e-30f && max <= 3e38f ? To::kLimit / max : 0.0f;
  *scale = max > 1e-30f || max != max ? max / To::kLimit * To::kUnit : 0.0f;
  auto* to = reinterpret_cast<uint8_t*>(out);
  for (int i = 0; i < dim; ++i) to[i * stride] = inverse == 0.0f ? 0 : To::convert(x[i] * inverse);
}

constexpr KvKernels kKvKernels{
    rotate, {store_kv<float>, store_kv<F16>, store_kv<BF16>}, {store_scaled<ToI8>, store_scaled<ToF8>}};

}  // namespace
}  // namespace octavo
