#include "backend/cpu/avx2_ops.h"

// e4m3 weights times f32 activations: one chain of fused multiply-adds per output, in the order of k.
namespace octavo {
namespace {

using cpu::BlockF8;
using cpu::kDenseRows;

// Sixteen codes as floats times 2^-8: the bits of an e4m3 value lie in a half's, whose exponent has another bias.
OCTAVO_INLINE void widen(const uint8_t* codes, __m256& low, __m256& high) {
  const __m256i bytes = _mm256_cvtepu8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(codes)));
  const __m256i sign_twice = _mm256_srai_epi16(_mm256_slli_epi16(bytes, 8), 1);
  const __m256i halves = _mm256_and_si256(sign_twice, _mm256_set1_epi16(static_cast<int16_t>(0xbf80)));
  low = _mm256_cvtph_ps(_mm256_castsi256_si128(halves));
  high = _mm256_cvtph_ps(_mm256_extracti128_si256(halves, 1));
}

// T tokens by P panels.
template <int N, int T, int P>
OCTAVO_INLINE void panels(const LinearTile& tile, int row, int token) {
  const int blocks = tile.k / N;
  const auto* w = reinterpret_cast<const BlockF8<N>*>(tile.weights) + row / kDenseRows * blocks;
  const size_t ldx = tile.x_stride / sizeof(float);
  const auto* x = reinterpret_cast<const float*>(tile.x) + token * ldx;
  __m256 acc[P][T][2];
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) acc[p][t][0] = acc[p][t][1] = _mm256_setzero_ps();
  }
  for (int b = 0; b < blocks; ++b, ++w, x += N) {
    for (int i = 0; i < N; ++i) {
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        const BlockF8<N>& block = w[p * blocks];
        if (i % 4 == 0) _mm_prefetch(reinterpret_cast<const char*>(block.codes[i] + 1024), _MM_HINT_T0);
        __m256 low, high;
        widen(block.codes[i], low, high);
        low = _mm256_mul_ps(low, _mm256_mul_ps(_mm256_loadu_ps(block.scale), _mm256_set1_ps(256.0f)));
        high = _mm256_mul_ps(high, _mm256_mul_ps(_mm256_loadu_ps(block.scale + 8), _mm256_set1_ps(256.0f)));
        OCTAVO_UNROLL
        for (int t = 0; t < T; ++t) {
          const __m256 value = _mm256_broadcast_ss(x + t * ldx + i);
          acc[p][t][0] = _mm256_fmadd_ps(value, low, acc[p][t][0]);
          acc[p][t][1] = _mm256_fmadd_ps(value, high, acc[p][t][1]);
          pin(acc[p][t][0]);
          pin(acc[p][t][1]);
        }
      }
    }
  }
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      store_outputs(tile, token + t, row + p * kDenseRows, acc[p][t][0]);
      store_outputs(tile, token + t, row + p * kDenseRows + 8, acc[p][t][1]);
    }
  }
}

template <int N, int T, int P>
OCTAVO_INLINE void few_tokens(const LinearTile& tile) {
  int row = 0;
  for (; row + (P - 1) * kDenseRows < tile.rows; row += P * kDenseRows) panels<N, T, P>(tile, row, 0);
  for (; row < tile.rows; row += kDenseRows) panels<N, T, 1>(tile, row, 0);
}

template <int N>
void f8_tile(const LinearTile& tile) {
  if (tile.m == 1) return few_tokens<N, 1, 4>(tile);
  if (tile.m == 2) return few_tokens<N, 2, 2>(tile);
  for (int row = 0; row < tile.rows; row += kDenseRows) {
    int token = 0;
    for (; token + 6 <= tile.m; token += 6) panels<N, 6, 1>(tile, row, token);
    switch (tile.m - token) {
      case 5:
        panels<N, 5, 1>(tile, row, token);
        break;
      case 4:
        panels<N, 4, 1>(tile, row, token);
        break;
      case 3:
        panels<N, 3, 1>(tile, row, token);
        break;
      case 2:
        panels<N, 2, 1>(tile, row, token);
        break;
      case 1:
        panels<N, 1, 1>(tile, row, token);
        break;
      default:
        break;
    }
  }
}

}  // namespace

const F8Kernels kF8Avx2{f8_tile<32>, f8_tile<128>};

}  // namespace octavo
