#pragma once
#include <cstdint>

#include "tensor/float8.h"
#include "tensor/half.h"

// Eight floats on whatever the compiler's target has. Same names as vec8_avx2.h; a multiply-add rounds twice.
namespace octavo {
namespace {

#define OCTAVO_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 8;
constexpr int kRegisters = 16;
using Vec = float __attribute__((vector_size(32)));
using VecI = int32_t __attribute__((vector_size(32)));
struct F16 {
  uint16_t bits;
};
struct BF16 {
  uint16_t bits;
};
struct I8 {
  int8_t code;
};
struct F8 {  // e4m3; reads as its value times 2^-8
  uint8_t code;
};

OCTAVO_INLINE Vec splat(float x) { return Vec{x, x, x, x, x, x, x, x}; }
OCTAVO_INLINE Vec fma(Vec a, Vec b, Vec c) { return a * b + c; }
OCTAVO_INLINE float fma(float a, float b, float c) { return a * b + c; }
OCTAVO_INLINE Vec select(VecI mask, Vec a, Vec b) {
  return reinterpret_cast<Vec>((reinterpret_cast<VecI>(a) & mask) | (reinterpret_cast<VecI>(b) & ~mask));
}
OCTAVO_INLINE Vec max(Vec a, Vec b) { return select(a > b, a, b); }
OCTAVO_INLINE bool all_lanes(VecI mask) {
  int32_t all = -1;
  for (int i = 0; i < 8; ++i) all &= mask[i];
  return all != 0;
}

// `v`, but 0 in the lanes where x < limit; NaN is not below.
OCTAVO_INLINE Vec zero_below(Vec v, Vec x, float limit) {
  const VecI below = x < splat(limit);
  return reinterpret_cast<Vec>(reinterpret_cast<VecI>(v) & ~below);
}

OCTAVO_INLINE void keep_order(Vec&) {}

OCTAVO_INLINE VecI widen(const uint16_t* p) {
  VecI wide;
  for (int i = 0; i < 8; ++i) wide[i] = p[i];
  return wide;
}
OCTAVO_INLINE Vec load(const float* p) {
  Vec v;
  __builtin_memcpy(&v, p, sizeof v);
  return v;
}
OCTAVO_INLINE Vec load(const F16* p) {
  const VecI h = widen(&p->bits);
  const VecI magnitude = (h & 0x7fff) << 13;
  // Exact for subnormals too: the exponent is rebased by a multiplication.
  const VecI finite = reinterpret_cast<VecI>(reinterpret_cast<Vec>(magnitude) * splat(0x1p112f));
  const VecI special = ((h & 0x7c00) == 0x7c00) & 0x7f800000;  // infinity or NaN
  return reinterpret_cast<Vec>(finite | special | ((h & 0x8000) << 16));
}
OCTAVO_INLINE Vec load(const BF16* p) { return reinterpret_cast<Vec>(widen(&p->bits) << 16); }
OCTAVO_INLINE Vec load(const I8* p) {
  Vec v;
  for (int i = 0; i < 8; ++i) v[i] = p[i].code;
  return v;
}
OCTAVO_INLINE Vec load(const F8* p) {
  Vec v;
  for (int i = 0; i < 8; ++i) v[i] = e4m3_to_f32(p[i].code) * 0x1p-8f;
  return v;
}
OCTAVO_INLINE void store(float* p, Vec v) { __builtin_memcpy(p, &v, sizeof v); }
OCTAVO_INLINE void store(F16* p, Vec v) {
  for (int i = 0; i < 8; ++i) p[i].bits = f32_to_f16(v[i]);
}

// One order for every horizontal reduction.
OCTAVO_INLINE float sum_lanes(Vec v) { return ((v[0] + v[4]) + (v[2] + v[6])) + ((v[1] + v[5]) + (v[3] + v[7])); }
OCTAVO_INLINE float max_lanes(Vec v) {
  float m = v[0];
  for (int i = 1; i < 8; ++i) m = v[i] > m ? v[i] : m;
  return m;
}

}  // namespace
}  // namespace octavo
