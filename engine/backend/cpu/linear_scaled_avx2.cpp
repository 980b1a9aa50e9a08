#include "backend/cpu/quantized_tile.h"
#include "backend/cpu/scaled_integers.h"

// Weights of scaled_blocks.h times 8-bit activations. Products are summed in int16 over as many chunks as cannot
// overflow; the multiply-add that widens the sums multiplies by the group's small integers as well.
namespace octavo {
namespace {

using namespace cpu;

template <class W>
struct Scaled {
  using Block = W;
  using G = typename W::Group;
  using Group = QuantizedGroup8;
  using Vector = __m256;
  static constexpr int kPanels = 1;
  static constexpr int kAhead = W::kGroups == 1 ? 16 : 2;
  static constexpr bool kTable = kHasTable<W>, kZeros = kHasZeros<W>;
  // A table that fills a byte is multiplied with its signs apart.
  static constexpr bool kSigned = kTable && !kSmallTable<W>;
  static constexpr int kOffset = kSigned ? 0 : code_offset<W>();
  static constexpr int kRun = [] {  // chunks that an int16 can sum
    constexpr int max = kSmallTable<W> ? 24 : kSigned ? 127 : max_code<G>();
    constexpr int chunks = 32767 / (2 * 127 * max), limit = kHalfScales<G> ? 4 : 8;
    int run = limit;
    while (run > chunks) run /= 2;
    return run;
  }();

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
        if constexpr (kZeros) dot[p][t] = _mm256_sub_epi32(dot[p][t], _mm256_madd_epi16(zero_pairs(*w[p]), halves));
        acc[p][t] = _mm256_fmadd_ps(scales, _mm256_cvtepi32_ps(dot[p][t]), acc[p][t]);
        if constexpr (kMinima<W>) {
          const __m256 mins = _mm256_mul_ps(load_half8(w[p]->min), _mm256_broadcast_ss(&x[t].scale));
          const __m256i minima = _mm256_madd_epi16(min_pairs(w[p]->groups[i]), halves);
          acc[p][t] = _mm256_fnmadd_ps(mins, _mm256_cvtepi32_ps(minima), acc[p][t]);
        }
      }
    }
  }

  static OCTAVO_INLINE __m256 weights_at(const Block* const* panel, const Outlier& x) {
    return outlier_weights((*panel)[x.group / W::kGroups], x);
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
