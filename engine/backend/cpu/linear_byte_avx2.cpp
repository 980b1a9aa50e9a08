#include "backend/cpu/quantized_tile_avx2.h"

// 8-bit weights times activations widened to 16 bits: one madd per chunk. (sign + maddubs + madd takes more
// instructions per product; both are exact, so the bits do not depend on the choice.)
namespace octavo {
namespace {

using cpu::BlockQ8_0;

template <int T>
OCTAVO_INLINE void add_bytes(const BlockQ8_0& w, const QuantizedGroup16* x, __m256 (&acc)[T]) {
  __m256i sum[T];
  OCTAVO_UNROLL
  for (int c = 0; c < 16; ++c) {
    const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.codes + 16 * c)));
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      const int16_t* q = x[t].q + 2 * c;
      const __m256i products = _mm256_madd_epi16(codes, broadcast4(q));
      sum[t] = c == 0 ? products : _mm256_add_epi32(sum[t], products);
      pin(sum[t]);
    }
  }
  const __m256 scale = load_half8(w.scale);
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) {
    const __m256 scales = _mm256_mul_ps(scale, _mm256_broadcast_ss(&x[t].scale));
    acc[t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(sum[t]), acc[t]);
    pin(acc[t]);
  }
}

struct Bytes {
  using Block = BlockQ8_0;
  using Group = QuantizedGroup16;
  static constexpr int kAhead = 10;
  template <int T>
  static OCTAVO_INLINE void add_group(const Block& w, const Group* x, __m256 (&acc)[T]) {
    add_bytes<T>(w, x, acc);
  }
};

}  // namespace

const ByteKernels kByteAvx2{quantized_tile<Bytes>};

}  // namespace octavo
