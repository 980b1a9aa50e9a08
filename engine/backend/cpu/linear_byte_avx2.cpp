#include "backend/cpu/avx2_ops.h"

// 8-bit weights times activations widened to 16 bits: one madd per chunk. (sign + maddubs + madd takes more
// instructions per product; both are exact, so the bits do not depend on the choice.)
namespace octavo {
namespace {

using cpu::BlockQ8_0;
using cpu::kGroup;
using cpu::kGroupRows;

template <int T>
OCTAVO_INLINE void add_group(const BlockQ8_0& w, const std::byte* x, size_t x_stride, __m256 (&acc)[T]) {
  __m256i sum[T];
  OCTAVO_UNROLL
  for (int c = 0; c < 16; ++c) {
    const __m256i codes = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(w.codes + 16 * c)));
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      const auto* q = reinterpret_cast<const QuantizedGroup16*>(x + t * x_stride)->q + 2 * c;
      const __m256i products = _mm256_madd_epi16(codes, broadcast4(q));
      sum[t] = c == 0 ? products : _mm256_add_epi32(sum[t], products);
      pin(sum[t]);
    }
  }
  const __m256 scale = load_half8(w.scale);
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) {
    const auto* group = reinterpret_cast<const QuantizedGroup16*>(x + t * x_stride);
    const __m256 scales = _mm256_mul_ps(scale, _mm256_broadcast_ss(&group->scale));
    acc[t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(sum[t]), acc[t]);
    pin(acc[t]);
  }
}

template <int T>
OCTAVO_INLINE void panel_tokens(const LinearTile& tile, const BlockQ8_0* w, int token, int row) {
  const int groups = tile.k / kGroup;
  const std::byte* x = tile.x + token * tile.x_stride;
  __m256 acc[T];
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) acc[t] = _mm256_setzero_ps();
  for (int g = 0; g < groups; ++g) {
    if constexpr (T <= 2) {  // memory sets the pace: weights come from beyond the caches
      const char* ahead = reinterpret_cast<const char*>(w + g) + 10 * sizeof(BlockQ8_0);
      OCTAVO_UNROLL
      for (int line = 0; line < 5; ++line) _mm_prefetch(ahead + 64 * line, _MM_HINT_T0);
    }
    add_group<T>(w[g], x + g * sizeof(QuantizedGroup16), tile.x_stride, acc);
  }
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) store_outputs(tile, token + t, row, acc[t]);
}

void byte_tile(const LinearTile& tile) {
  const auto* w = reinterpret_cast<const BlockQ8_0*>(tile.weights);
  for (int row = 0; row < tile.rows; row += kGroupRows, w += tile.k / kGroup) {
    int token = 0;
    for (; token + 4 <= tile.m; token += 4) panel_tokens<4>(tile, w, token, row);
    switch (tile.m - token) {
      case 3:
        panel_tokens<3>(tile, w, token, row);
        break;
      case 2:
        panel_tokens<2>(tile, w, token, row);
        break;
      case 1:
        panel_tokens<1>(tile, w, token, row);
        break;
      default:
        break;
    }
  }
}

}  // namespace

const ByteKernels kByteAvx2{byte_tile};

}  // namespace octavo
