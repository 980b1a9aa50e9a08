#include "backend/cpu/avx512_ops.h"
#include "backend/cpu/quantized_tile.h"

// 8-bit weights times 16-bit activations: one dot product instruction per chunk and two panels.
namespace octavo {
namespace {

using cpu::BlockQ8_0;

struct Bytes {
  using Block = BlockQ8_0;
  using Group = QuantizedGroup16;
  using Vector = __m512;
  static constexpr int kPanels = 2;
  static constexpr int kAhead = 10;

  static OCTAVO_INLINE Vector zero() { return _mm512_setzero_ps(); }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[2 * P], const Group* x, __m512 (&acc)[P][T]) {
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
        codes[p] = _mm512_cvtepi8_epi16(load32(w[2 * p]->codes + 16 * c, w[2 * p + 1]->codes + 16 * c));
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
      const __m512 scale = load_half16(w[2 * p]->scale, w[2 * p + 1]->scale);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512 scales = _mm512_mul_ps(scale, _mm512_set1_ps(x[t].scale));
        acc[p][t] = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(sum[p][t]), acc[p][t]);
      }
    }
  }

  template <int P, int T>
  static OCTAVO_INLINE void add_outliers(const Block* const (&)[2 * P], const LinearTile&, int, __m512 (&)[P][T]) {}
};

// With few tokens memory sets the pace, and one stream of single panels is read faster than two.
void tile(const LinearTile& tile) {
  if (tile.slots < kTokenSlots) return kByteAvx2.q8_0(tile);
  quantized_tile<Bytes>(tile);
}

}  // namespace

const ByteKernels kByteAvx512{tile};

}  // namespace octavo
