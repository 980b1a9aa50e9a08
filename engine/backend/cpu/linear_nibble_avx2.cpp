#include "backend/cpu/quantized_tile_avx2.h"

// 4- and 5-bit weights times 8-bit activations: maddubs on unsigned codes, accumulated in int16 over as much of a group
// as cannot overflow (8 chunks * 2 products * 15 * 127 = 30480; with 5 bits 4 chunks: 31496).
namespace octavo {
namespace {

using cpu::BlockQ4_0;
using cpu::BlockQ4_1;
using cpu::BlockQ5_0;
using cpu::BlockQ5_1;

template <class Block>
struct Traits;
template <>
struct Traits<BlockQ4_0> {
  static constexpr bool kFiveBits = false;
  static OCTAVO_INLINE __m256 min(const BlockQ4_0&, __m256 scale) {
    return _mm256_mul_ps(scale, _mm256_set1_ps(-8.0f));
  }
};
template <>
struct Traits<BlockQ4_1> {
  static constexpr bool kFiveBits = false;
  static OCTAVO_INLINE __m256 min(const BlockQ4_1& w, __m256) { return load_half8(w.min); }
};
template <>
struct Traits<BlockQ5_0> {
  static constexpr bool kFiveBits = true;
  static OCTAVO_INLINE __m256 min(const BlockQ5_0&, __m256 scale) {
    return _mm256_mul_ps(scale, _mm256_set1_ps(-16.0f));
  }
};
template <>
struct Traits<BlockQ5_1> {
  static constexpr bool kFiveBits = true;
  static OCTAVO_INLINE __m256 min(const BlockQ5_1& w, __m256) { return load_half8(w.min); }
};

// The fifth bits of chunk c, as 16 or 0 per byte.
OCTAVO_INLINE __m256i fifth_bits(__m256i high, int c) {
  const __m256i moved = c <= 4 ? _mm256_slli_epi16(high, 4 - c) : _mm256_srli_epi16(high, c - 4);
  return _mm256_and_si256(moved, _mm256_set1_epi8(16));
}

// One group of 8 rows for T tokens.
template <class Block, int T>
OCTAVO_INLINE void add_nibbles(const Block& w, const QuantizedGroup8* x, __m256 (&acc)[T]) {
  const __m256i low4 = _mm256_set1_epi8(15), one = _mm256_set1_epi16(1);
  constexpr bool kFiveBits = Traits<Block>::kFiveBits;
  __m256i high = _mm256_setzero_si256();
  if constexpr (kFiveBits) high = load32(w.high);
  __m256i sum[T], total[T];
  OCTAVO_UNROLL
  for (int j = 0; j < 4; ++j) {
    const __m256i bytes = load32(w.codes + 32 * j);
    __m256i even = _mm256_and_si256(bytes, low4);
    __m256i odd = _mm256_and_si256(_mm256_srli_epi16(bytes, 4), low4);
    if constexpr (kFiveBits) {
      even = _mm256_or_si256(even, fifth_bits(high, 2 * j));
      odd = _mm256_or_si256(odd, fifth_bits(high, 2 * j + 1));
    }
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      const int8_t* q = x[t].q + 8 * j;
      const __m256i products =
          _mm256_add_epi16(_mm256_maddubs_epi16(even, broadcast4(q)), _mm256_maddubs_epi16(odd, broadcast4(q + 4)));
      const bool restart = j == 0 || (kFiveBits && j == 2);
      if (kFiveBits && j == 2) total[t] = _mm256_madd_epi16(sum[t], one);
      sum[t] = restart ? products : _mm256_add_epi16(sum[t], products);
      pin(sum[t]);
    }
  }
  const __m256 scale = load_half8(w.scale);
  const __m256 min = Traits<Block>::min(w, scale);
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) {
    __m256i dot = _mm256_madd_epi16(sum[t], one);
    if constexpr (kFiveBits) dot = _mm256_add_epi32(dot, total[t]);
    const __m256 scales = _mm256_mul_ps(scale, _mm256_broadcast_ss(&x[t].scale));
    acc[t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(dot), acc[t]);
    acc[t] = _mm256_fmadd_ps(min, _mm256_broadcast_ss(&x[t].sum), acc[t]);
    pin(acc[t]);
  }
}

template <class W>
struct Nibbles {
  using Block = W;
  using Group = QuantizedGroup8;
  static constexpr int kAhead = 16;
  template <int T>
  static OCTAVO_INLINE void add_group(const Block& w, const Group* x, __m256 (&acc)[T]) {
    add_nibbles<Block, T>(w, x, acc);
  }
};

}  // namespace

const NibbleKernels kNibbleAvx2{quantized_tile<Nibbles<BlockQ4_0>>, quantized_tile<Nibbles<BlockQ4_1>>,
                                quantized_tile<Nibbles<BlockQ5_0>>, quantized_tile<Nibbles<BlockQ5_1>>};

}  // namespace octavo
