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

// x = max / limit * q for the 32 values of a group.
struct Scaled {
  float max;  // of the magnitudes; NaN where a value is
  float scale;
  __m256i q[4];  // int32

  OCTAVO_INLINE Scaled(const float* x, float limit) {
    __m256 v[4];
    __m256i bits = _mm256_setzero_si256();  // compared as integers, a NaN is the largest and survives
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) {
      v[j] = _mm256_loadu_ps(x + 8 * j);
      bits = _mm256_max_epi32(bits, _mm256_and_si256(_mm256_castps_si256(v[j]), _mm256_set1_epi32(0x7fffffff)));
    }
    max = horizontal_max_bits(bits);
    const bool zero = max < 1e-30f;  // its inverse would overflow
    scale = zero ? 0.0f : max / limit;
    const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : limit / max);
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse));
  }
};

OCTAVO_INLINE __m256i to_int16(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}

void quantize8(const float* x, int k, QuantizedGroup8* out, int slots) {
  for (int i = 0; i < k; i += kGroup, x += kGroup, out += slots) {
    const Scaled group(x, 127.0f);
    const __m256i* q = group.q;
    const __m256i sum = _mm256_add_epi32(_mm256_add_epi32(q[0], q[1]), _mm256_add_epi32(q[2], q[3]));
    out->scale = group.scale;
    out->sum = group.scale * static_cast<float>(horizontal_sum(sum));
    const __m256i codes = _mm256_packs_epi16(to_int16(q[0], q[1]), to_int16(q[2], q[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->q), _mm256_permute4x64_epi64(codes, 0xd8));
  }
}

void quantize16(const float* x, int k, QuantizedGroup16* out, int slots) {
  for (int i = 0; i < k; i += kGroup, x += kGroup, out += slots) {
    const Scaled group(x, 32767.0f);
    out->scale = group.scale;
    auto* to = reinterpret_cast<__m256i*>(out->q);
    _mm256_storeu_si256(to, to_int16(group.q[0], group.q[1]));
    _mm256_storeu_si256(to + 1, to_int16(group.q[2], group.q[3]));
  }
}

}  // namespace

const QuantizeKernels kQuantizeAvx2{quantize8, quantize16};

}  // namespace octavo
