#pragma once
#include <immintrin.h>

#include <cstdint>

// Sixteen floats on AVX-512; the names of vec8_avx2.h. Included only by files compiled for that instruction set.
namespace octavo {
namespace {

#define OCTAVO_INLINE inline __attribute__((always_inline))

constexpr int kLanes = 16;
constexpr int kRegisters = 32;
using Vec = __m512;
using VecI = int32_t __attribute__((vector_size(64)));
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

OCTAVO_INLINE Vec splat(float x) { return _mm512_set1_ps(x); }
OCTAVO_INLINE Vec fma(Vec a, Vec b, Vec c) { return _mm512_fmadd_ps(a, b, c); }
OCTAVO_INLINE float fma(float a, float b, float c) { return __builtin_fmaf(a, b, c); }
OCTAVO_INLINE Vec max(Vec a, Vec b) { return _mm512_max_ps(a, b); }
OCTAVO_INLINE Vec select(VecI mask, Vec a, Vec b) {
  return _mm512_mask_mov_ps(b, _mm512_test_epi32_mask(reinterpret_cast<__m512i>(mask), reinterpret_cast<__m512i>(mask)),
                            a);
}
OCTAVO_INLINE Vec zero_below(Vec v, Vec x, float limit) {
  return _mm512_maskz_mov_ps(_mm512_cmp_ps_mask(x, splat(limit), _CMP_NLT_UQ), v);
}

// The compiler moves no use of `v` across this.
OCTAVO_INLINE void keep_order(Vec& v) { asm("" : "+v"(v)); }

OCTAVO_INLINE __m512 widen(__m256i halves, F16) { return _mm512_cvtph_ps(halves); }
OCTAVO_INLINE __m512 widen(__m256i halves, BF16) {
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(halves), 16));
}

OCTAVO_INLINE Vec load(const float* p) { return _mm512_loadu_ps(p); }
template <class T>
  requires(sizeof(T) == 2)
OCTAVO_INLINE Vec load(const T* p) {
  return widen(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p)), T{});
}
// Eight lanes from each of two places.
OCTAVO_INLINE Vec load(const float* low, const float* high) {
  const __m512d a = _mm512_castpd256_pd512(_mm256_castps_pd(_mm256_loadu_ps(low)));
  return _mm512_castpd_ps(_mm512_insertf64x4(a, _mm256_castps_pd(_mm256_loadu_ps(high)), 1));
}
template <class T>
  requires(sizeof(T) == 2)
OCTAVO_INLINE Vec load(const T* low, const T* high) {
  const __m128i a = _mm_loadu_si128(reinterpret_cast<const __m128i*>(low));
  const __m128i b = _mm_loadu_si128(reinterpret_cast<const __m128i*>(high));
  return widen(_mm256_inserti128_si256(_mm256_castsi128_si256(a), b, 1), T{});
}
OCTAVO_INLINE __m512 widen(__m128i bytes, I8) { return _mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes)); }
// The bits of an e4m3 value lie in a half's, whose exponent has another bias.
OCTAVO_INLINE __m512 widen(__m128i bytes, F8) {
  const __m256i sign_twice = _mm256_srai_epi16(_mm256_slli_epi16(_mm256_cvtepu8_epi16(bytes), 8), 1);
  return _mm512_cvtph_ps(_mm256_and_si256(sign_twice, _mm256_set1_epi16(static_cast<int16_t>(0xbf80))));
}
template <class T>
  requires(sizeof(T) == 1)
OCTAVO_INLINE Vec load(const T* p) {
  return widen(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)), T{});
}
template <class T>
  requires(sizeof(T) == 1)
OCTAVO_INLINE Vec load(const T* low, const T* high) {
  const __m128i a = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(low));
  return widen(_mm_unpacklo_epi64(a, _mm_loadl_epi64(reinterpret_cast<const __m128i*>(high))), T{});
}
OCTAVO_INLINE void store(float* p, Vec v) { _mm512_storeu_ps(p, v); }

OCTAVO_INLINE __m256 low_half(Vec v) { return __builtin_shufflevector(v, v, 0, 1, 2, 3, 4, 5, 6, 7); }
OCTAVO_INLINE __m256 high_half(Vec v) { return __builtin_shufflevector(v, v, 8, 9, 10, 11, 12, 13, 14, 15); }

// One order for every horizontal reduction.
OCTAVO_INLINE float sum_lanes(Vec v) {
  const __m256 a = _mm256_add_ps(low_half(v), high_half(v));
  const __m128 b = _mm_add_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_add_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_add_ss(c, _mm_movehdup_ps(c)));
}
OCTAVO_INLINE float max_lanes(Vec v) {
  const __m256 a = _mm256_max_ps(low_half(v), high_half(v));
  const __m128 b = _mm_max_ps(_mm256_castps256_ps128(a), _mm256_extractf128_ps(a, 1));
  const __m128 c = _mm_max_ps(b, _mm_movehl_ps(b, b));
  return _mm_cvtss_f32(_mm_max_ss(c, _mm_movehdup_ps(c)));
}

}  // namespace
}  // namespace octavo
