#pragma once
// __half, __nv_bfloat16 and fp8 conversions. Arithmetic is done in f32 and rounded once, as on the device.
#include <bit>
#include <cmath>
#include <cstdint>

#include "backend/cuda/emulator/vector_types.h"
#include "tensor/float8.h"
#include "tensor/half.h"

struct __half_raw {
  unsigned short x;
};
struct __half {
  uint16_t bits;
  __half() = default;
  __half(const __half_raw& raw) : bits(raw.x) {}
  explicit __half(float x) : bits(octavo::f32_to_f16(x)) {}
  explicit operator float() const { return octavo::f16_to_f32(bits); }
};
struct __nv_bfloat16 {
  uint16_t bits;
  __nv_bfloat16() = default;
  explicit __nv_bfloat16(float x) : bits(octavo::f32_to_bf16(x)) {}
  explicit operator float() const { return octavo::bf16_to_f32(bits); }
};
struct alignas(4) __half2 {
  __half x, y;
};
struct alignas(4) __nv_bfloat162 {
  __nv_bfloat16 x, y;
};
using half = __half;
using half2 = __half2;
using nv_bfloat16 = __nv_bfloat16;
using nv_bfloat162 = __nv_bfloat162;

inline float __half2float(__half x) { return static_cast<float>(x); }
inline __half __float2half(float x) { return __half(x); }
inline __half __float2half_rn(float x) { return __half(x); }
inline __half2 __floats2half2_rn(float x, float y) { return {__half(x), __half(y)}; }
inline __half2 __float22half2_rn(float2 v) { return {__half(v.x), __half(v.y)}; }
inline __half2 __float2half2_rn(float x) { return {__half(x), __half(x)}; }
inline float2 __half22float2(__half2 v) { return {static_cast<float>(v.x), static_cast<float>(v.y)}; }
inline __half2 __halves2half2(__half x, __half y) { return {x, y}; }
inline __half2 __half2half2(__half x) { return {x, x}; }
inline __half __low2half(__half2 v) { return v.x; }
inline __half __high2half(__half2 v) { return v.y; }
inline float __low2float(__half2 v) { return static_cast<float>(v.x); }
inline float __high2float(__half2 v) { return static_cast<float>(v.y); }
inline unsigned short __half_as_ushort(__half x) { return x.bits; }
inline __half __ushort_as_half(unsigned short bits) {
  __half x;
  x.bits = bits;
  return x;
}

inline float __bfloat162float(__nv_bfloat16 x) { return static_cast<float>(x); }
inline __nv_bfloat16 __float2bfloat16(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat16 __float2bfloat16_rn(float x) { return __nv_bfloat16(x); }
inline __nv_bfloat162 __floats2bfloat162_rn(float x, float y) { return {__nv_bfloat16(x), __nv_bfloat16(y)}; }
inline __nv_bfloat162 __float22bfloat162_rn(float2 v) { return {__nv_bfloat16(v.x), __nv_bfloat16(v.y)}; }
inline __nv_bfloat162 __float2bfloat162_rn(float x) { return {__nv_bfloat16(x), __nv_bfloat16(x)}; }
inline float2 __bfloat1622float2(__nv_bfloat162 v) { return {static_cast<float>(v.x), static_cast<float>(v.y)}; }
inline float __low2float(__nv_bfloat162 v) { return static_cast<float>(v.x); }
inline float __high2float(__nv_bfloat162 v) { return static_cast<float>(v.y); }
inline unsigned short __bfloat16_as_ushort(__nv_bfloat16 x) { return x.bits; }
inline __nv_bfloat16 __ushort_as_bfloat16(unsigned short bits) {
  __nv_bfloat16 x;
  x.bits = bits;
  return x;
}

#define OCTAVO_PAIR_OP(name, expression)                                                                         \
  inline __half2 name(__half2 a, __half2 b) {                                                                    \
    auto op = [](float x, float y) { return expression; };                                                       \
    return {__half(op(__half2float(a.x), __half2float(b.x))), __half(op(__half2float(a.y), __half2float(b.y)))}; \
  }                                                                                                              \
  inline __nv_bfloat162 name(__nv_bfloat162 a, __nv_bfloat162 b) {                                               \
    auto op = [](float x, float y) { return expression; };                                                       \
    return {__nv_bfloat16(op(static_cast<float>(a.x), static_cast<float>(b.x))),                                 \
            __nv_bfloat16(op(static_cast<float>(a.y), static_cast<float>(b.y)))};                                \
  }
OCTAVO_PAIR_OP(__hadd2, x + y)
OCTAVO_PAIR_OP(__hsub2, x - y)
OCTAVO_PAIR_OP(__hmul2, x* y)
#undef OCTAVO_PAIR_OP
inline __half2 __hfma2(__half2 a, __half2 b, __half2 c) {
  auto op = [](__half x, __half y, __half z) {
    return __half(std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)));
  };
  return {op(a.x, b.x, c.x), op(a.y, b.y, c.y)};
}
inline __nv_bfloat162 __hfma2(__nv_bfloat162 a, __nv_bfloat162 b, __nv_bfloat162 c) {
  auto op = [](__nv_bfloat16 x, __nv_bfloat16 y, __nv_bfloat16 z) {
    return __nv_bfloat16(std::fma(static_cast<float>(x), static_cast<float>(y), static_cast<float>(z)));
  };
  return {op(a.x, b.x, c.x), op(a.y, b.y, c.y)};
}

enum __nv_fp8_interpretation_t { __NV_E4M3, __NV_E5M2 };
enum __nv_saturation_t { __NV_NOSAT, __NV_SATFINITE };
using __nv_fp8_storage_t = unsigned char;

// e4m3 alone, nearest with ties to even, saturating.
inline __nv_fp8_storage_t __nv_cvt_float_to_fp8(float x, __nv_saturation_t, __nv_fp8_interpretation_t) {
  const uint32_t bits = std::bit_cast<uint32_t>(x), sign = bits >> 24 & 0x80;
  const float magnitude = std::fabs(x);
  if (std::isnan(x)) return static_cast<__nv_fp8_storage_t>(sign | 0x7f);
  if (magnitude >= octavo::kE4m3Max) return static_cast<__nv_fp8_storage_t>(sign | 0x7e);
  if (magnitude < 0x1p-6f)
    return static_cast<__nv_fp8_storage_t>(sign | static_cast<uint32_t>(std::nearbyint(magnitude * 512.0f)));
  const uint32_t rounded = (bits & 0x7fffffffu) + 0x7ffffu + (bits >> 20 & 1);
  return static_cast<__nv_fp8_storage_t>(sign | ((rounded >> 20) - 960));
}
inline __half_raw __nv_cvt_fp8_to_halfraw(__nv_fp8_storage_t x, __nv_fp8_interpretation_t) {
  return {octavo::f32_to_f16(octavo::e4m3_to_f32(x))};
}
