#include <type_traits>

#include "backend/cpu/quantized_tile.h"
#include "backend/cpu/scaled_chunk.h"

// Weights of scaled_blocks.h times 8-bit activations. Products are summed in int16 over as many chunks as cannot
// overflow; the multiply-add that widens the sums multiplies by the group's small integers as well.
namespace octavo {
namespace {

using namespace cpu;

OCTAVO_INLINE __m128i load16(const void* p) { return _mm_loadu_si128(static_cast<const __m128i*>(p)); }
OCTAVO_INLINE __m128i load8(const void* p) { return _mm_loadl_epi64(static_cast<const __m128i*>(p)); }

// Pairs of int16 per row: the integers of the two halves of a group.
OCTAVO_INLINE __m256i twice(__m256i v) { return _mm256_blend_epi16(v, _mm256_slli_epi32(v, 16), 0xaa); }
template <class G>
OCTAVO_INLINE __m256i scale_pairs(const G& g) {
  if constexpr (requires { g.scales; }) {
    return _mm256_cvtepu8_epi16(_mm_and_si128(load16(g.scales), _mm_set1_epi8(15)));
  } else if constexpr (kHalfScales<G>) {
    return _mm256_cvtepi8_epi16(load16(g.scale));
  } else if constexpr (kGroupScales<G>) {
    return twice(_mm256_cvtepi8_epi32(load8(g.scale)));  // unsigned ones have 6 bits
  } else {
    return _mm256_set1_epi16(1);
  }
}
template <class G>
OCTAVO_INLINE __m256i min_pairs(const G& g) {
  if constexpr (requires { g.scales; }) {
    return _mm256_cvtepu8_epi16(_mm_and_si128(_mm_srli_epi16(load16(g.scales), 4), _mm_set1_epi8(15)));
  } else {
    return twice(_mm256_cvtepi8_epi32(load8(g.min)));
  }
}
// One half's integer in both places.
OCTAVO_INLINE __m256i half_of(__m256i pairs, int half) {
  const __m256i low = _mm256_setr_epi8(0, 1, 0, 1, 4, 5, 4, 5, 8, 9, 8, 9, 12, 13, 12, 13, 0, 1, 0, 1, 4, 5, 4, 5, 8, 9,
                                       8, 9, 12, 13, 12, 13);
  return _mm256_shuffle_epi8(pairs, half ? _mm256_add_epi8(low, _mm256_set1_epi8(2)) : low);
}

template <class W>
OCTAVO_INLINE __m256 block_scale(const W& w) {
  if constexpr (requires { w.exponent; }) {  // 2^(e - 128); the two smallest are not normal numbers
    const __m256i e = _mm256_cvtepu8_epi32(load8(w.exponent));
    const __m256i normal = _mm256_slli_epi32(_mm256_sub_epi32(e, _mm256_set1_epi32(1)), 23);
    const __m256i tiny = _mm256_sllv_epi32(_mm256_set1_epi32(0x00200000), e);
    return _mm256_castsi256_ps(_mm256_blendv_epi8(normal, tiny, _mm256_cmpgt_epi32(_mm256_set1_epi32(2), e)));
  } else if constexpr (std::is_same_v<decltype(w.scale), float[kGroupRows]>) {
    return _mm256_loadu_ps(w.scale);
  } else {
    return load_half8(w.scale);
  }
}

OCTAVO_INLINE __m256i table(const int8_t* values) { return _mm256_broadcastsi128_si256(load16(values)); }

template <class W>
struct Scaled {
  using Block = W;
  using G = typename W::Group;
  using Group = QuantizedGroup8;
  using Vector = __m256;
  static constexpr int kPanels = 1;
  static constexpr int kAhead = W::kGroups == 1 ? 16 : 2;
  static constexpr bool kTable = requires { W::kValues; };
  // A table of few bits is shifted to positive values; one that fills a byte is multiplied with its signs apart.
  static constexpr bool kMxfp4 = std::is_same_v<W, BlockMXFP4>;
  static constexpr bool kSigned = kTable && !kMxfp4;
  static constexpr int kOffset = [] {
    if constexpr (kMxfp4) return 12;
    if constexpr (requires { W::kOffset; }) return W::kOffset;
    return 0;
  }();
  static constexpr int kRun = [] {  // chunks that an int16 can sum
    constexpr int max = kMxfp4 ? 24 : kSigned ? 127 : max_code<G>();
    constexpr int chunks = 32767 / (2 * 127 * max), limit = kHalfScales<G> ? 4 : 8;
    int run = limit;
    while (run > chunks) run /= 2;
    return run;
  }();

  static constexpr bool kZeros = requires(W w) { w.zero; };

  static OCTAVO_INLINE __m256i zeros(const Block& w) { return twice(_mm256_cvtepu8_epi32(load8(w.zero))); }
  static OCTAVO_INLINE Vector zero() { return _mm256_setzero_ps(); }

  static OCTAVO_INLINE __m256i chunk(const G& g, int c) {
    return scaled_chunk<G>(c, [&](size_t offset) { return load32(reinterpret_cast<const char*>(&g) + offset); });
  }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[P], int i, const Group* x, __m256 (&acc)[P][T]) {
    __m256i sum[P][T], dot[P][T], pairs[P];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) pairs[p] = scale_pairs(w[p]->groups[i]);
    OCTAVO_UNROLL
    for (int c = 0; c < 8; ++c) {
      __m256i codes[P], signs[P], scale[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        codes[p] = chunk(w[p]->groups[i], c);
        if constexpr (kTable) {
          __m256i values = table(W::kValues);
          if constexpr (kSigned) {
            signs[p] = _mm256_shuffle_epi8(values, codes[p]);
            values = _mm256_abs_epi8(values);
          } else {
            values = _mm256_add_epi8(values, _mm256_set1_epi8(kOffset));
          }
          codes[p] = _mm256_shuffle_epi8(values, codes[p]);
        }
        scale[p] = kHalfScales<G> ? half_of(pairs[p], c / 4) : pairs[p];
      }
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m256i q = broadcast4(x[t].q + 4 * c);
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          const __m256i products = _mm256_maddubs_epi16(codes[p], kSigned ? _mm256_sign_epi8(q, signs[p]) : q);
          sum[p][t] = c % kRun == 0 ? products : _mm256_add_epi16(sum[p][t], products);
          pin(sum[p][t]);
          if (c % kRun != kRun - 1) continue;
          const __m256i scaled = _mm256_madd_epi16(sum[p][t], scale[p]);
          dot[p][t] = c < kRun ? scaled : _mm256_add_epi32(dot[p][t], scaled);
          pin(dot[p][t]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const __m256 scale = block_scale(*w[p]);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m256 scales = _mm256_mul_ps(scale, _mm256_broadcast_ss(&x[t].scale));
        const __m256i halves = broadcast4(x[t].half_sums);
        if constexpr (kOffset > 0) {
          const __m256i shifted = _mm256_mullo_epi32(_mm256_madd_epi16(pairs[p], halves), _mm256_set1_epi32(kOffset));
          dot[p][t] = _mm256_sub_epi32(dot[p][t], shifted);
        }
        if constexpr (kZeros) dot[p][t] = _mm256_sub_epi32(dot[p][t], _mm256_madd_epi16(zeros(*w[p]), halves));
        acc[p][t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(dot[p][t]), acc[p][t]);
        if constexpr (kMinima<W>) {
          const __m256 mins = _mm256_mul_ps(load_half8(w[p]->min), _mm256_broadcast_ss(&x[t].scale));
          const __m256i minima = _mm256_madd_epi16(min_pairs(w[p]->groups[i]), halves);
          acc[p][t] = _mm256_fnmadd_ps(mins, _mm256_cvtepi32_ps(minima), acc[p][t]);
        }
      }
    }
  }

  // The weights that meet one activation.
  static OCTAVO_INLINE __m256 column(const Block& w, const Outlier& x) {
    const G& g = w.groups[x.group % W::kGroups];
    const int place = outlier_place(x);
    __m256i codes = scaled_column<G>(
        place, [&](size_t offset) { return load32(reinterpret_cast<const char*>(&g) + offset); },
        [](__m256i v, int n) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(n)); });
    if constexpr (kTable) {
      codes = _mm256_shuffle_epi8(table(W::kValues), codes);
      codes = _mm256_srai_epi32(_mm256_slli_epi32(codes, 24), 24);
    } else if constexpr (kZeros) {
      codes = _mm256_sub_epi32(codes, _mm256_cvtepu8_epi32(load8(w.zero)));
    } else {
      codes = _mm256_sub_epi32(codes, _mm256_set1_epi32(kOffset));
    }
    const auto integers = [&](__m256i pairs) {
      return _mm256_srai_epi32(place < 16 ? _mm256_slli_epi32(pairs, 16) : pairs, 16);
    };
    codes = _mm256_mullo_epi32(codes, integers(scale_pairs(g)));
    const __m256 weights = _mm256_mul_ps(block_scale(w), _mm256_cvtepi32_ps(codes));
    if constexpr (kMinima<W>) {
      return _mm256_fnmadd_ps(load_half8(w.min), _mm256_cvtepi32_ps(integers(min_pairs(g))), weights);
    }
    return weights;
  }

  template <int P, int T>
  static OCTAVO_INLINE void add_outliers(const Block* const (&panels)[P], const LinearTile& tile, int token,
                                         __m256 (&acc)[P][T]) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      const auto& list = *reinterpret_cast<const Outliers*>(tile.outliers + (token + t) * tile.outliers_stride);
      __m256 sum[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) sum[p] = zero();
      for (const Outlier *x = list.entries, *end = x + list.count; x != end; ++x) {
        const __m256 value = _mm256_broadcast_ss(&x->value);
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          sum[p] = _mm256_fmadd_ps(column(panels[p][x->group / W::kGroups], *x), value, sum[p]);
        }
      }
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) acc[p][t] = _mm256_add_ps(acc[p][t], sum[p]);
    }
  }
};

}  // namespace

const ScaledKernels kScaledAvx2{
    quantized_tile<Scaled<BlockQ2_K>>,    quantized_tile<Scaled<BlockQ3_K>>,  quantized_tile<Scaled<BlockQ4_K>>,
    quantized_tile<Scaled<BlockQ5_K>>,    quantized_tile<Scaled<BlockQ6_K>>,  quantized_tile<Scaled<BlockIQ4_NL>>,
    quantized_tile<Scaled<BlockIQ4_XS>>,  quantized_tile<Scaled<BlockMXFP4>>, quantized_tile<Scaled<BlockInt4<1>>>,
    quantized_tile<Scaled<BlockInt4<4>>>,
};

}  // namespace octavo
