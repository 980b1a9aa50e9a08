#include "backend/cpu/quantized_tile.h"

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

// One group of P panels for T tokens. Each broadcast of activations serves P panels.
template <class W>
struct Nibbles {
  using Block = W;
  using Group = QuantizedGroup8;
  using Vector = __m256;
  static constexpr int kPanels = 1;
  static constexpr int kAhead = 16;
  static constexpr bool kFiveBits = Traits<W>::kFiveBits;

  // Codes of chunk c, one per byte.
  static OCTAVO_INLINE __m256i chunk(const Block& w, int c) {
    __m256i codes = load32(w.codes + 32 * (c / 2));
    if (c % 2) codes = _mm256_srli_epi16(codes, 4);
    codes = _mm256_and_si256(codes, _mm256_set1_epi8(15));
    if constexpr (kFiveBits) codes = _mm256_or_si256(codes, fifth_bits(load32(w.high), c));
    return codes;
  }

  static OCTAVO_INLINE Vector zero() { return _mm256_setzero_ps(); }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[P], const Group* x, __m256 (&acc)[P][T]) {
    const __m256i one = _mm256_set1_epi16(1);
    __m256i sum[P][T], total[P][T];
    OCTAVO_UNROLL
    for (int c = 0; c < 8; ++c) {
      __m256i codes[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) codes[p] = chunk(*w[p], c);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m256i q = broadcast4(x[t].q + 4 * c);
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          const __m256i products = _mm256_maddubs_epi16(codes[p], q);
          if (kFiveBits && c == 4) total[p][t] = _mm256_madd_epi16(sum[p][t], one);
          const bool restart = c == 0 || (kFiveBits && c == 4);
          sum[p][t] = restart ? products : _mm256_add_epi16(sum[p][t], products);
          pin(sum[p][t]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const __m256 scale = load_half8(w[p]->scale);
      const __m256 min = Traits<Block>::min(*w[p], scale);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        __m256i dot = _mm256_madd_epi16(sum[p][t], one);
        if constexpr (kFiveBits) dot = _mm256_add_epi32(dot, total[p][t]);
        const __m256 scales = _mm256_mul_ps(scale, _mm256_broadcast_ss(&x[t].scale));
        acc[p][t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(dot), acc[p][t]);
        acc[p][t] = _mm256_fmadd_ps(min, _mm256_broadcast_ss(&x[t].sum), acc[p][t]);
      }
    }
  }

  // The codes that meet one activation, as int32.
  static OCTAVO_INLINE __m256i column(const Block& w, const Outlier& x) {
    const __m256i codes = _mm256_srlv_epi32(load32(w.codes + x.address), _mm256_set1_epi32(x.shift));
    const __m256i low = _mm256_and_si256(codes, _mm256_set1_epi32(15));
    if constexpr (kFiveBits) {
      const __m256i high = _mm256_srl_epi32(load32(w.high), _mm_cvtsi32_si128(fifth_bit_shift(x)));
      return _mm256_or_si256(low, _mm256_slli_epi32(_mm256_and_si256(high, _mm256_set1_epi32(1)), 4));
    }
    return low;
  }

  static OCTAVO_INLINE __m256 weights_at(const Block* const* panel, const Outlier& x) {
    const Block& w = (*panel)[x.group];
    return _mm256_mul_ps(load_half8(w.scale), _mm256_cvtepi32_ps(column(w, x)));
  }
};

}  // namespace

const NibbleKernels kNibbleAvx2{quantized_tile<Nibbles<BlockQ4_0>>, quantized_tile<Nibbles<BlockQ4_1>>,
                                quantized_tile<Nibbles<BlockQ5_0>>, quantized_tile<Nibbles<BlockQ5_1>>};

}  // namespace octavo
