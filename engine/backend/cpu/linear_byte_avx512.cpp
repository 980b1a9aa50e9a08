#include "backend/cpu/avx512_ops.h"
#include "backend/cpu/quantized_tile.h"

// 8-bit weights times 16-bit activations: one dot product instruction per chunk and two panels.
namespace octavo {
namespace {

using cpu::BlockInt8;
using cpu::BlockQ8_0;

OCTAVO_INLINE const int8_t* byte_codes(const BlockQ8_0& w, int) { return w.codes; }
OCTAVO_INLINE __m512 byte_scale(const BlockQ8_0& a, const BlockQ8_0& b) { return load_half16(a.scale, b.scale); }
template <int N>
OCTAVO_INLINE const int8_t* byte_codes(const BlockInt8<N>& w, int i) {
  return w.groups[i].codes;
}
template <int N>
OCTAVO_INLINE __m512 byte_scale(const BlockInt8<N>& a, const BlockInt8<N>& b) {
  return _mm512_castsi512_ps(load64(a.scale, b.scale));
}

template <class W>
struct Bytes {
  using Block = W;
  using Group = QuantizedGroup16;
  using Vector = __m512;
  static constexpr int kPanels = 2;
  static constexpr int kAhead = sizeof(W) > 512 ? 2 : 10;

  static OCTAVO_INLINE Vector zero() { return _mm512_setzero_ps(); }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[2 * P], const Group* x, __m512 (&acc)[P][T]) {
    add_group<P, T>(w, 0, x, acc);
  }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[2 * P], int i, const Group* x, __m512 (&acc)[P][T]) {
    __m512i sum[P][T];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) sum[p][t] = _mm512_setzero_si512();
    }
    OCTAVO_UNROLL
    for (int c = 0; c < 16; ++c) {
      __m512i codes[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        codes[p] =
            _mm512_cvtepi8_epi16(load32(byte_codes(*w[2 * p], i) + 16 * c, byte_codes(*w[2 * p + 1], i) + 16 * c));
      }
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          sum[p][t] = _mm512_dpwssd_epi32(sum[p][t], codes[p], broadcast16(x[t].q + 2 * c));
          pin(sum[p][t]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const __m512 scale = byte_scale(*w[2 * p], *w[2 * p + 1]);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512 scales = _mm512_mul_ps(scale, _mm512_set1_ps(x[t].scale));
        acc[p][t] = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(sum[p][t]), acc[p][t]);
      }
    }
  }
};

// With few tokens memory sets the pace, and one stream of single panels is read faster than two.
template <class Block, TileKernel ByteKernels::* kFewTokens>
void tile(const LinearTile& tile) {
  if (tile.slots < kTokenSlots) return (kByteAvx2.*kFewTokens)(tile);
  quantized_tile<Bytes<Block>>(tile);
}

}  // namespace

const ByteKernels kByteAvx512{tile<BlockQ8_0, &ByteKernels::q8_0>, tile<BlockInt8<1>, &ByteKernels::int8x32>,
                              tile<BlockInt8<4>, &ByteKernels::int8x128>, false};

}  // namespace octavo
