#pragma once
// Only for files compiled with -mavx2 -mfma -mf16c. Everything here has internal linkage (see kernels.h).
#include <immintrin.h>

#include "backend/cpu/linear_kernels.h"

#define OCTAVO_INLINE inline __attribute__((always_inline))
// GCC keeps an array of accumulators in memory unless every loop over it is unrolled.
#define OCTAVO_UNROLL _Pragma("GCC unroll 16")

namespace octavo {
namespace {

// Keeps the accumulator in its register between unrolled steps.
OCTAVO_INLINE void pin(__m256i& v) { asm("" : "+x"(v)); }
OCTAVO_INLINE void pin(__m256& v) { asm("" : "+x"(v)); }

OCTAVO_INLINE void add_product(__m256 weights, float x, __m256& sum) {
  sum = _mm256_fmadd_ps(weights, _mm256_set1_ps(x), sum);
}

OCTAVO_INLINE __m256i broadcast4(const void* p) {
  return _mm256_castps_si256(_mm256_broadcast_ss(static_cast<const float*>(p)));
}

OCTAVO_INLINE __m256 load_half8(const uint16_t* p) {
  return _mm256_cvtph_ps(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
}

// Of the bit in the 32 bits of BlockQ5_x::high that hold a row's (see weight_layout.h).
OCTAVO_INLINE int fifth_bit_shift(const Outlier& x) { return x.shift / 8 * 8 + x.address / 16 + x.shift % 8 / 4; }

OCTAVO_INLINE __m256i load32(const void* p) { return _mm256_loadu_si256(static_cast<const __m256i*>(p)); }

// Epilogue of rows [row, row + 8) of one token.
OCTAVO_INLINE void store_outputs(const LinearTile& tile, int token, int row, __m256 acc) {
  float* y = tile.y + token * tile.ldy + row;
  if (row + 8 <= tile.rows) {
    if (tile.bias) acc = _mm256_add_ps(acc, _mm256_loadu_ps(tile.bias + row));
    if (tile.accumulate) acc = _mm256_add_ps(_mm256_loadu_ps(y), acc);
    _mm256_storeu_ps(y, acc);
    return;
  }
  const __m256i lane = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
  const __m256i valid = _mm256_cmpgt_epi32(_mm256_set1_epi32(tile.rows - row), lane);
  if (tile.bias) acc = _mm256_add_ps(acc, _mm256_maskload_ps(tile.bias + row, valid));
  if (tile.accumulate) acc = _mm256_add_ps(_mm256_maskload_ps(y, valid), acc);
  _mm256_maskstore_ps(y, valid, acc);
}

}  // namespace
}  // namespace octavo
