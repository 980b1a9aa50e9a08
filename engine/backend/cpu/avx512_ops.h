#pragma once
// Only for files compiled with the flags of avx2_ops.h and -mavx512f -mavx512bw -mavx512vl -mavx512vnni. Everything
// here has internal linkage (see kernels.h). A vector spans two panels: the low half is the first one's.
#include "backend/cpu/avx2_ops.h"

namespace octavo {
namespace {

OCTAVO_INLINE void pin(__m512i& v) { asm("" : "+v"(v)); }

OCTAVO_INLINE void add_product(__m512 weights, float x, __m512& sum) {
  sum = _mm512_fmadd_ps(weights, _mm512_set1_ps(x), sum);
}

OCTAVO_INLINE __m512i broadcast16(const void* p) {
  int32_t word;
  __builtin_memcpy(&word, p, sizeof word);
  return _mm512_set1_epi32(word);
}

OCTAVO_INLINE __m512i load64(const void* low, const void* high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(load32(low)), load32(high), 1);
}

OCTAVO_INLINE __m256i load32(const void* low, const void* high) {
  const __m128i a = _mm_loadu_si128(static_cast<const __m128i*>(low));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(a), _mm_loadu_si128(static_cast<const __m128i*>(high)), 1);
}

OCTAVO_INLINE __m512 load_half16(const uint16_t* low, const uint16_t* high) {
  return _mm512_cvtph_ps(load32(low, high));
}

// Epilogue of rows [row, row + 16) of one token.
OCTAVO_INLINE void store_outputs(const LinearTile& tile, int token, int row, __m512 acc) {
  float* y = tile.y + token * tile.ldy + row;
  const int count = tile.rows - row;
  const __mmask16 valid = count < 16 ? (1u << count) - 1 : 0xffffu;
  if (tile.bias) acc = _mm512_add_ps(acc, _mm512_maskz_loadu_ps(valid, tile.bias + row));
  if (tile.accumulate) acc = _mm512_add_ps(_mm512_maskz_loadu_ps(valid, y), acc);
  _mm512_mask_storeu_ps(y, valid, acc);
}

}  // namespace
}  // namespace octavo
