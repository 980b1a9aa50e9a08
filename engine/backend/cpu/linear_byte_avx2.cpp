#include "backend/cpu/quantized_tile.h"

// 8-bit weights times 16-bit activations: one madd per chunk. (8-bit activations would take no fewer instructions.)
namespace octavo {
namespace {

using cpu::BlockInt8;
using cpu::BlockQ8_0;

OCTAVO_INLINE const int8_t* byte_codes(const BlockQ8_0& w, int) { return w.codes; }
OCTAVO_INLINE __m256 byte_scale(const BlockQ8_0& w) { return load_half8(w.scale); }
template <int N>
OCTAVO_INLINE const int8_t* byte_codes(const BlockInt8<N>& w, int i) {
  return w.groups[i].codes;
}
template <int N>
OCTAVO_INLINE __m256 byte_scale(const BlockInt8<N>& w) {
  return _mm256_loadu_ps(w.scale);
}

// One group of P panels for T tokens. Each broadcast of activations serves P panels.
template <class W>
struct Bytes {
  using Block = W;
  using Group = QuantizedGroup16;
  using Vector = __m256;
  static constexpr int kPanels = 1;
  static constexpr int kAhead = sizeof(W) > 512 ? 2 : 10;

  static OCTAVO_INLINE Vector zero() { return _mm256_setzero_ps(); }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[P], const Group* x, __m256 (&acc)[P][T]) {
    add_group<P, T>(w, 0, x, acc);
  }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[P], int i, const Group* x, __m256 (&acc)[P][T]) {
    __m256i sum[P][T];
    OCTAVO_UNROLL
    for (int c = 0; c < 16; ++c) {
      __m256i codes[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        codes[p] =
            _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(byte_codes(*w[p], i) + 16 * c)));
      }
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m256i q = broadcast4(x[t].q + 2 * c);
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          const __m256i products = _mm256_madd_epi16(codes[p], q);
          sum[p][t] = c == 0 ? products : _mm256_add_epi32(sum[p][t], products);
          pin(sum[p][t]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const __m256 scale = byte_scale(*w[p]);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m256 scales = _mm256_mul_ps(scale, _mm256_broadcast_ss(&x[t].scale));
        acc[p][t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(sum[p][t]), acc[p][t]);
      }
    }
  }
};

}  // namespace

const ByteKernels kByteAvx2{quantized_tile<Bytes<BlockQ8_0>>, quantized_tile<Bytes<BlockInt8<1>>>,
                            quantized_tile<Bytes<BlockInt8<4>>>, false};

}  // namespace octavo
