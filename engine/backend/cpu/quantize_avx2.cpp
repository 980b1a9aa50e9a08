#include "backend/cpu/avx2_ops.h"

namespace octavo {
namespace {

using cpu::kGroup;

OCTAVO_INLINE int horizontal_sum(__m256i v) {
  __m128i s = _mm_add_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_add_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtsi128_si32(s);
}

OCTAVO_INLINE float horizontal_max_bits(__m256i v) {
  __m128i s = _mm_max_epi32(_mm256_castsi256_si128(v), _mm256_extracti128_si256(v, 1));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0x4e));
  s = _mm_max_epi32(s, _mm_shuffle_epi32(s, 0xb1));
  return _mm_cvtss_f32(_mm_castsi128_ps(s));
}

template <class Code>
void quantize(const float* x, int k, QuantizedGroup<Code>* out, int slots) {
  const __m256i magnitude = _mm256_set1_epi32(0x7fffffff);
  for (int i = 0; i < k; i += kGroup, x += kGroup, out += slots) {
    __m256 v[4];
    __m256i bits = _mm256_setzero_si256();  // compared as integers, a NaN is the largest and survives
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) {
      v[j] = _mm256_loadu_ps(x + 8 * j);
      bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(v[j]), magnitude));
    }
    const float max = horizontal_max_bits(bits);
    const bool zero = max < 1e-30f;  // its inverse would overflow
    const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : 127.0f / max);
    __m256i q[4], sum = _mm256_setzero_si256();
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) {
      q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse));
      sum = _mm256_add_epi32(sum, q[j]);
    }
    out->scale = zero ? 0.0f : max / 127.0f;
    out->sum = out->scale * static_cast<float>(horizontal_sum(sum));
    const __m256i a = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[0], q[1]), 0xd8);
    const __m256i b = _mm256_permute4x64_epi64(_mm256_packs_epi32(q[2], q[3]), 0xd8);
    auto* to = reinterpret_cast<__m256i*>(out->q);
    if constexpr (sizeof(Code) == 1) {
      _mm256_storeu_si256(to, _mm256_permute4x64_epi64(_mm256_packs_epi16(a, b), 0xd8));
    } else {
      _mm256_storeu_si256(to, a);
      _mm256_storeu_si256(to + 1, b);
    }
  }
}

}  // namespace

const QuantizeKernels kQuantizeAvx2{quantize<int8_t>, quantize<int16_t>};

}  // namespace octavo
