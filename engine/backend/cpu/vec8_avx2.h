#pragma once
#include <immintrin.h>

#include <cstdint>

// Eight floats on AVX2 + FMA + F16C. Included only by files compiled for that instruction set; vec8_baseline.h offers
// the same names elsewhere. Internal linkage: no function of this file may serve another one.
namespace octavo {
namespace {

#define OCTAVO_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 8;
constexpr int kRegisters = 16;
using Vec = __m256;
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

OCTAVO_INLINE Vec splat(float x) { return _mm256_set1_ps(x); }
OCTAVO_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm256_fmadd_ps(a, b, c); }
OCTAVO_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OCTAVO_INLINE Vec max(Vec a, Vec b) { return _mm256_max_ps(a, b); }
OCTAVO_INLINE Vec select(VecI mask, Vec a, Vec b) { return _mm256_blendv_ps(b, a, reinterpret_cast<Vec>(mask)); }
OCTAVO_INLINE bool all_lanes(VecI mask) { return _mm256_movemask_ps(reinterpret_cast<Vec>(mask)) == 0xff; }

// `v`, but 0 in the lanes where x < limit; NaN is not below.
OCTAVO_INLINE Vec zero_below(Vec v, Vec x, float limit) {
  const VecI below = x < splat(limit);
  return reinterpret_cast<Vec>(reinterpret_cast<VecI>(v) & ~below);
}

// The compiler moves no use of `v` across this.
OCTAVO_INLINE void keep_order(Vec& v) { asm("" : "+x"(v)); }

OCTAVO_INLINE Vec load(const float* p) { return _mm256_loadu_ps(p); }
OCTAVO_INLINE Vec load(const F16* p) { return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))); }
OCTAVO_INLINE Vec load(const BF16* p) {
  const __m256i wide = _mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
  return _mm256_castsi256_ps(_mm256_slli_epi32(wide, 16));
}
OCTAVO_INLINE Vec load(const I8* p) {
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p))));
}
// The bits of an e4m3 value lie in a half's, whose exponent has another bias.
OCTAVO_INLINE Vec load(const F8* p) {
  const __m128i bytes = _mm_cvtepu8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
  const __m128i sign_twice = _mm_srai_epi16(_mm_slli_epi16(bytes, 8), 1);
  return _mm256_cvtph_ps(_mm_and_si128(sign_twice, _mm_set1_epi16(static_cast<int16_t>(0xbf80))));
}
OCTAVO_INLINE void store(float* p, Vec v) { _mm256_storeu_ps(p, v); }
OCTAVO_INLINE void store(F16* p, Vec v) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(p), _mm256_cvtps_ph(v, _MM_FROUND_TO_NEAREST_INT));
}

// One order for every horizontal reduction.
OCTAVO_INLINE float sum_lanes(Vec v) {
  const __m128 a = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 b = _mm_add_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_add_ss(b, _mm_movehdup_ps(b)));
}
OCTAVO_INLINE float max_lanes(Vec v) {
  const __m128 a = _mm_max_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  const __m128 b = _mm_max_ps(a, _mm_movehl_ps(a, a));
  return _mm_cvtss_f32(_mm_max_ss(b, _mm_movehdup_ps(b)));
}

}  // namespace
}  // namespace octavo
