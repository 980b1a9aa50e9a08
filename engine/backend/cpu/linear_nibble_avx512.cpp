#include "backend/cpu/avx512_ops.h"
#include "backend/cpu/quantized_tile.h"

// 4- and 5-bit weights times 8-bit activations: one dot product instruction per chunk and two panels. The sums are
// those of the AVX2 kernels, in the same order: the same bits.
namespace octavo {
namespace {

using cpu::BlockQ4_0;
using cpu::BlockQ4_1;
using cpu::BlockQ5_0;
using cpu::BlockQ5_1;

// The fifth bits of chunk c, as bit 4 of every byte; the other bits are anything.
OCTAVO_INLINE __m512i fifth_bits(__m512i high, int c) {
  return c <= 4 ? _mm512_slli_epi16(high, 4 - c) : _mm512_srli_epi16(high, c - 4);
}

template <class W>
struct Nibbles {
  using Block = W;
  using Group = QuantizedGroup8;
  using Vector = __m512;
  static constexpr int kPanels = 2;
  static constexpr int kAhead = 16;
  static constexpr bool kFiveBits = requires(W w) { w.high; };

  static OCTAVO_INLINE Vector zero() { return _mm512_setzero_ps(); }

  static OCTAVO_INLINE __m512 min(const Block& a, const Block& b, __m512 scale) {
    if constexpr (requires { a.min; }) return load_half16(a.min, b.min);
    return _mm512_mul_ps(scale, _mm512_set1_ps(kFiveBits ? -16.0f : -8.0f));
  }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[2 * P], const Group* x, __m512 (&acc)[P][T]) {
    __m512i sum[P][T], raw[P], high[P];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      if constexpr (kFiveBits) high[p] = load64(w[2 * p]->high, w[2 * p + 1]->high);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) sum[p][t] = _mm512_setzero_si512();
    }
    OCTAVO_UNROLL
    for (int c = 0; c < 8; ++c) {
      __m512i codes[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        if (c % 2 == 0) raw[p] = load64(w[2 * p]->codes + 16 * c, w[2 * p + 1]->codes + 16 * c);
        codes[p] = c % 2 == 0 ? raw[p] : _mm512_srli_epi16(raw[p], 4);
        codes[p] = _mm512_and_si512(codes[p], _mm512_set1_epi8(15));
        if constexpr (kFiveBits) {  // codes | (bits & 16)
          codes[p] = _mm512_ternarylogic_epi32(codes[p], fifth_bits(high[p], c), _mm512_set1_epi8(16), 0xf8);
        }
        pin(codes[p]);
      }
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          sum[p][t] = _mm512_dpbusd_epi32(sum[p][t], codes[p], broadcast16(x[t].q + 4 * c));
          pin(sum[p][t]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const __m512 scale = load_half16(w[2 * p]->scale, w[2 * p + 1]->scale);
      const __m512 min = Nibbles::min(*w[2 * p], *w[2 * p + 1], scale);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512 scales = _mm512_mul_ps(scale, _mm512_set1_ps(x[t].scale));
        acc[p][t] = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(sum[p][t]), acc[p][t]);
        acc[p][t] = _mm512_fmadd_ps(min, _mm512_set1_ps(x[t].sum), acc[p][t]);
      }
    }
  }

  // The codes that meet one activation, as int32.
  static OCTAVO_INLINE __m512i column(const Block& a, const Block& b, const Outlier& x) {
    const __m512i codes = load64(a.codes + x.address, b.codes + x.address);
    const __m512i low = _mm512_and_si512(_mm512_srlv_epi32(codes, _mm512_set1_epi32(x.shift)), _mm512_set1_epi32(15));
    if constexpr (kFiveBits) {
      const __m512i high = _mm512_srl_epi32(load64(a.high, b.high), _mm_cvtsi32_si128(fifth_bit_shift(x)));
      return _mm512_or_si512(low, _mm512_slli_epi32(_mm512_and_si512(high, _mm512_set1_epi32(1)), 4));
    }
    return low;
  }

  static OCTAVO_INLINE __m512 weights_at(const Block* const* panels, const Outlier& x) {
    const Block &a = panels[0][x.group], &b = panels[1][x.group];
    return _mm512_mul_ps(load_half16(a.scale, b.scale), _mm512_cvtepi32_ps(column(a, b, x)));
  }
};

// With few tokens memory sets the pace, and one stream of single panels is read faster than two.
template <class Block, TileKernel NibbleKernels::* kFewTokens>
void tile(const LinearTile& tile) {
  if (tile.slots < kTokenSlots) return (kNibbleAvx2.*kFewTokens)(tile);
  quantized_tile<Nibbles<Block>>(tile);
}

}  // namespace

const NibbleKernels kNibbleAvx512{tile<BlockQ4_0, &NibbleKernels::q4_0>, tile<BlockQ4_1, &NibbleKernels::q4_1>,
                                  tile<BlockQ5_0, &NibbleKernels::q5_0>, tile<BlockQ5_1, &NibbleKernels::q5_1>};

}  // namespace octavo
