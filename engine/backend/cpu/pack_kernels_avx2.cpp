#include "backend/cpu/avx2_ops.h"
#include "backend/cpu/pack_kernels.h"

namespace octavo {
namespace {

using cpu::kGroup;

struct F32 {
  static constexpr int kBytes = 4;
  static OCTAVO_INLINE __m256 load(const std::byte* p) { return _mm256_loadu_ps(reinterpret_cast<const float*>(p)); }
};
struct F16 {
  static constexpr int kBytes = 2;
  static OCTAVO_INLINE __m256 load(const std::byte* p) { return load_half8(reinterpret_cast<const uint16_t*>(p)); }
};
struct BF16 {
  static constexpr int kBytes = 2;
  static OCTAVO_INLINE __m256 load(const std::byte* p) {
    const __m128i raw = _mm_loadu_si128(reinterpret_cast<const __m128i*>(p));
    return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(raw), 16));
  }
};

template <class Source>
OCTAVO_INLINE void load_group(const std::byte* row, int begin, __m256 (&x)[4]) {
  OCTAVO_UNROLL
  for (int j = 0; j < 4; ++j) x[j] = Source::load(row + (begin + 8 * j) * Source::kBytes);
}

template <class Op>
OCTAVO_INLINE float reduce(const __m256 (&x)[4], Op op) {
  const __m256 v = op(op(x[0], x[1]), op(x[2], x[3]));
  const auto low = [](__m128 a) { return _mm256_castps128_ps256(a); };
  __m256 s = op(v, _mm256_permute2f128_ps(v, v, 1));
  s = op(s, low(_mm_movehl_ps(_mm256_castps256_ps128(s), _mm256_castps256_ps128(s))));
  s = op(s, low(_mm_movehdup_ps(_mm256_castps256_ps128(s))));
  return _mm256_cvtss_f32(s);
}
OCTAVO_INLINE float group_max(const __m256 (&x)[4]) {
  return reduce(x, [](__m256 a, __m256 b) { return _mm256_max_ps(a, b); });
}

OCTAVO_INLINE std::byte* put_half(std::byte* to, float v) {
  const uint16_t half = static_cast<uint16_t>(_mm_cvtsi128_si32(_mm_cvtps_ph(_mm_set_ss(v), 0)));
  __builtin_memcpy(to, &half, 2);
  return to + 2;
}

// The codes of a group as bytes, in order.
OCTAVO_INLINE __m256i to_bytes(const __m256i (&q)[4]) {
  const __m256i words = _mm256_packs_epi16(_mm256_packs_epi32(q[0], q[1]), _mm256_packs_epi32(q[2], q[3]));
  return _mm256_permutevar8x32_epi32(words, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

// To the nearest integer, halves away from zero.
OCTAVO_INLINE __m256i rounded(__m256 v) {
  const __m256 sign = _mm256_and_ps(v, _mm256_set1_ps(-0.0f)), a = _mm256_xor_ps(v, sign);
  const __m256 whole = _mm256_floor_ps(a);
  const __m256 up = _mm256_cmp_ps(_mm256_sub_ps(a, whole), _mm256_set1_ps(0.5f), _CMP_GE_OQ);
  return _mm256_cvttps_epi32(_mm256_or_ps(_mm256_add_ps(whole, _mm256_and_ps(up, _mm256_set1_ps(1.0f))), sign));
}

template <class Source>
void quantize_q8_0(const std::byte* row, int k, std::byte* out) {
  for (int begin = 0; begin < k; begin += kGroup) {
    __m256 x[4], magnitude[4];
    __m256i q[4];
    load_group<Source>(row, begin, x);
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) magnitude[j] = _mm256_andnot_ps(_mm256_set1_ps(-0.0f), x[j]);
    const float scale = group_max(magnitude) / 127.0f;
    const __m256 inverse = _mm256_set1_ps(scale == 0.0f ? 0.0f : 1.0f / scale);
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) q[j] = rounded(_mm256_mul_ps(x[j], inverse));
    out = put_half(out, scale);
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out), to_bytes(q));
    out += kGroup;
  }
}

template <class Source>
void quantize_q4_1(const std::byte* row, int k, std::byte* out) {
  for (int begin = 0; begin < k; begin += kGroup) {
    __m256 x[4];
    __m256i q[4];
    load_group<Source>(row, begin, x);
    const float low = reduce(x, [](__m256 a, __m256 b) { return _mm256_min_ps(a, b); });
    const float scale = (group_max(x) - low) / 15.0f;
    const __m256 inverse = _mm256_set1_ps(scale == 0.0f ? 0.0f : 1.0f / scale), min = _mm256_set1_ps(low);
    OCTAVO_UNROLL
    for (int j = 0; j < 4; ++j) {
      const __m256 code = _mm256_add_ps(_mm256_mul_ps(_mm256_sub_ps(x[j], min), inverse), _mm256_set1_ps(0.5f));
      q[j] = _mm256_min_epi32(_mm256_cvttps_epi32(code), _mm256_set1_epi32(15));
    }
    out = put_half(put_half(out, scale), low);
    const __m256i codes = to_bytes(q);
    const __m128i high = _mm_slli_epi16(_mm256_extracti128_si256(codes, 1), 4);
    _mm_storeu_si128(reinterpret_cast<__m128i*>(out), _mm_or_si128(_mm256_castsi256_si128(codes), high));
    out += kGroup / 2;
  }
}

// Eight columns of words to rows.
OCTAVO_INLINE void transpose(__m256i (&v)[8]) {
  __m256i a[8], b[8];
  OCTAVO_UNROLL
  for (int i = 0; i < 8; i += 2) {
    a[i] = _mm256_unpacklo_epi32(v[i], v[i + 1]);
    a[i + 1] = _mm256_unpackhi_epi32(v[i], v[i + 1]);
  }
  OCTAVO_UNROLL
  for (int i = 0; i < 8; i += 4) {
    b[i] = _mm256_unpacklo_epi64(a[i], a[i + 2]);
    b[i + 1] = _mm256_unpackhi_epi64(a[i], a[i + 2]);
    b[i + 2] = _mm256_unpacklo_epi64(a[i + 1], a[i + 3]);
    b[i + 3] = _mm256_unpackhi_epi64(a[i + 1], a[i + 3]);
  }
  OCTAVO_UNROLL
  for (int i = 0; i < 4; ++i) {
    v[i] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x20);
    v[i + 4] = _mm256_permute2x128_si256(b[i], b[i + 4], 0x31);
  }
}

// Eight elements of two rows of 16 bits as words.
OCTAVO_INLINE __m256i row_pair(const std::byte* a, const std::byte* b) {
  const __m128i low = _mm_loadu_si128(reinterpret_cast<const __m128i*>(a));
  const __m128i high = _mm_loadu_si128(reinterpret_cast<const __m128i*>(b));
  return _mm256_inserti128_si256(_mm256_castsi128_si256(_mm_unpacklo_epi16(low, high)), _mm_unpackhi_epi16(low, high),
                                 1);
}

// In a panel of 16 bits, row `low(j)` and `high(j)` make word j.
template <class Low, class High>
OCTAVO_INLINE void pack_halves(const std::byte* const* rows, int k, std::byte* panel, Low low, High high) {
  int i = 0;
  for (; i + 8 <= k; i += 8) {
    __m256i v[8];
    OCTAVO_UNROLL
    for (int j = 0; j < 8; ++j) v[j] = row_pair(rows[low(j)] + 2 * i, rows[high(j)] + 2 * i);
    transpose(v);
    OCTAVO_UNROLL
    for (int j = 0; j < 8; ++j) _mm256_storeu_si256(reinterpret_cast<__m256i*>(panel + 32 * (i + j)), v[j]);
  }
  for (; i < k; ++i) {
    for (int j = 0; j < 8; ++j) {
      __builtin_memcpy(panel + 32 * i + 4 * j, rows[low(j)] + 2 * i, 2);
      __builtin_memcpy(panel + 32 * i + 4 * j + 2, rows[high(j)] + 2 * i, 2);
    }
  }
}
void pack_f16(const std::byte* const* rows, int k, std::byte* panel) {
  pack_halves(rows, k, panel, [](int j) { return 2 * j; }, [](int j) { return 2 * j + 1; });
}
void pack_bf16(const std::byte* const* rows, int k, std::byte* panel) {
  pack_halves(rows, k, panel, [](int j) { return j; }, [](int j) { return j + 8; });
}
void pack_f32(const std::byte* const* rows, int k, std::byte* panel) {
  int i = 0;
  for (; i + 8 <= k; i += 8) {
    for (int half = 0; half < 2; ++half) {
      __m256i v[8];
      OCTAVO_UNROLL
      for (int j = 0; j < 8; ++j) v[j] = load32(rows[8 * half + j] + 4 * i);
      transpose(v);
      OCTAVO_UNROLL
      for (int j = 0; j < 8; ++j) {
        _mm256_storeu_si256(reinterpret_cast<__m256i*>(panel + 64 * (i + j) + 32 * half), v[j]);
      }
    }
  }
  for (; i < k; ++i) {
    for (int r = 0; r < cpu::kDenseRows; ++r) __builtin_memcpy(panel + 64 * i + 4 * r, rows[r] + 4 * i, 4);
  }
}

}  // namespace

const PackKernels kPackAvx2{{quantize_q8_0<F32>, quantize_q8_0<F16>, quantize_q8_0<BF16>},
                            {quantize_q4_1<F32>, quantize_q4_1<F16>, quantize_q4_1<BF16>},
                            {pack_f32, pack_f16, pack_bf16}};

}  // namespace octavo
