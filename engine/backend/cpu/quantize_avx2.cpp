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

OCTAVO_INLINE float horizontal_sum(__m256 v) {
  __m128 s = _mm_add_ps(_mm256_castps256_ps128(v), _mm256_extractf128_ps(v, 1));
  s = _mm_add_ps(s, _mm_movehl_ps(s, s));
  return _mm_cvtss_f32(_mm_add_ss(s, _mm_movehdup_ps(s)));
}

OCTAVO_INLINE __m256 magnitude(__m256 v) { return _mm256_andnot_ps(_mm256_set1_ps(-0.0f), v); }

OCTAVO_INLINE void load_group(const float* x, __m256 (&v)[4]) {
  OCTAVO_UNROLL
  for (int j = 0; j < 4; ++j) v[j] = _mm256_loadu_ps(x + 8 * j);
}

// Codes (int32) of a group, x = scale * q, |q| <= limit; returns the scale.
OCTAVO_INLINE float scale_group(const __m256 (&v)[4], float limit, __m256i (&q)[4]) {
  __m256i bits = _mm256_setzero_si256();  // compared as integers, a NaN is the largest and survives
  OCTAVO_UNROLL
  for (int j = 0; j < 4; ++j) bits = _mm256_max_epi32(bits, _mm256_castps_si256(magnitude(v[j])));
  const float max = horizontal_max_bits(bits);
  const bool zero = max < 1e-30f;  // its inverse would overflow
  const __m256 inverse = _mm256_set1_ps(zero ? 0.0f : limit / max);
  OCTAVO_UNROLL
  for (int j = 0; j < 4; ++j) q[j] = _mm256_cvtps_epi32(_mm256_mul_ps(v[j], inverse));
  return zero ? 0.0f : max / limit;
}

float mean_magnitude(const float* x, int k) {
  __m256 sum[4] = {};
  for (int i = 0; i < k; i += kGroup) {
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) sum[j] = _mm256_add_ps(sum[j], magnitude(_mm256_loadu_ps(x + i + 8 * j)));
  }
  return horizontal_sum(_mm256_add_ps(_mm256_add_ps(sum[0], sum[1]), _mm256_add_ps(sum[2], sum[3]))) / k;
}

// Moves the values of a group above the threshold to the list; returns their sum.
OCTAVO_INLINE float take_outliers(int group, float threshold, __m256 (&v)[4], Outliers& list) {
  __m256 above[4];
  OCTAVO_UNROLL
  for (int j = 0; j < 4; ++j) above[j] = _mm256_cmp_ps(magnitude(v[j]), _mm256_set1_ps(threshold), _CMP_GT_OQ);
  const __m256 any = _mm256_or_ps(_mm256_or_ps(above[0], above[1]), _mm256_or_ps(above[2], above[3]));
  float sum = 0.0f;
  if (_mm256_testz_ps(any, any)) return sum;
  for (int j = 0; j < 4; ++j) {
    float lanes[8];
    _mm256_storeu_ps(lanes, v[j]);
    for (int mask = _mm256_movemask_ps(above[j]); mask != 0; mask &= mask - 1) {
      const int lane = __builtin_ctz(mask);
      sum += lanes[lane];
      list.entries[list.count++] = make_outlier(lanes[lane], group * kGroup + 8 * j + lane);
    }
    v[j] = _mm256_andnot_ps(above[j], v[j]);
  }
  return sum;
}

OCTAVO_INLINE __m256i to_int16(__m256i a, __m256i b) {
  return _mm256_permute4x64_epi64(_mm256_packs_epi32(a, b), 0xd8);
}

void quantize8(const float* x, int k, QuantizedGroup8* out, int slots, Outliers* outliers) {
  const float threshold = outlier_threshold(mean_magnitude(x, k));
  outliers->count = 0;
  for (int group = 0; group < k / kGroup; ++group, x += kGroup, out += slots) {
    __m256 v[4];
    __m256i q[4];
    load_group(x, v);
    const float taken = take_outliers(group, threshold, v, *outliers);
    out->scale = scale_group(v, 127.0f, q);
    const int low = horizontal_sum(_mm256_add_epi32(q[0], q[1])), high = horizontal_sum(_mm256_add_epi32(q[2], q[3]));
    out->half_sums[0] = static_cast<int16_t>(low);
    out->half_sums[1] = static_cast<int16_t>(high);
    out->sum = out->scale * static_cast<float>(low + high) + taken;
    const __m256i codes = _mm256_packs_epi16(to_int16(q[0], q[1]), to_int16(q[2], q[3]));
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out->q), _mm256_permute4x64_epi64(codes, 0xd8));
  }
}

void quantize16(const float* x, int k, QuantizedGroup16* out, int slots) {
  for (int i = 0; i < k; i += kGroup, x += kGroup, out += slots) {
    __m256 v[4];
    __m256i q[4];
    load_group(x, v);
    out->scale = scale_group(v, 32767.0f, q);
    auto* to = reinterpret_cast<__m256i*>(out->q);
    _mm256_storeu_si256(to, to_int16(q[0], q[1]));
    _mm256_storeu_si256(to + 1, to_int16(q[2], q[3]));
  }
}

}  // namespace

const QuantizeKernels kQuantizeAvx2{quantize8, quantize16, nullptr};

}  // namespace octavo
