#include "backend/cpu/avx512_ops.h"
#include "backend/cpu/quantized_tile.h"
#include "backend/cpu/scaled_integers.h"

// Weights of scaled_blocks.h times 8-bit activations: one dot product instruction per chunk and two panels. The sums
// are those of the AVX2 kernels, in the same order: the same bits.
namespace octavo {
namespace {

OCTAVO_INLINE __m512i both(__m256i low, __m256i high) {
  return _mm512_inserti64x4(_mm512_castsi256_si512(low), high, 1);
}
OCTAVO_INLINE __m512 both(__m256 low, __m256 high) {
  return _mm512_castsi512_ps(both(_mm256_castps_si256(low), _mm256_castps_si256(high)));
}
OCTAVO_INLINE __m512i half_of(__m512i pairs, int half) {  // as int32
  return _mm512_srai_epi32(half ? pairs : _mm512_slli_epi32(pairs, 16), 16);
}

template <class W>
struct Scaled {
  using Block = W;
  using G = typename W::Group;
  using Group = QuantizedGroup8;
  using Vector = __m512;
  static constexpr int kPanels = 2;
  static constexpr int kAhead = W::kGroups == 1 ? 16 : 2;
  static constexpr int kRun = kHalfScales<G> ? 4 : 8;  // chunks that share an integer

  static OCTAVO_INLINE Vector zero() { return _mm512_setzero_ps(); }

  static OCTAVO_INLINE __m512i chunk(const G& a, const G& b, int c) {
    const __m512i codes = scaled_chunk<G>(c, [&](size_t offset) {
      return load64(reinterpret_cast<const char*>(&a) + offset, reinterpret_cast<const char*>(&b) + offset);
    });
    if constexpr (!kHasTable<W>) {
      return codes;
    } else {
      const __m512i values = _mm512_broadcast_i32x4(load16(W::kValues));
      return _mm512_shuffle_epi8(_mm512_add_epi8(values, _mm512_set1_epi8(static_cast<char>(code_offset<W>()))), codes);
    }
  }

  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[2 * P], int i, const Group* x, __m512 (&acc)[P][T]) {
    __m512i sum[P][T], dot[P][T], pairs[P];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) pairs[p] = both(scale_pairs(w[2 * p]->groups[i]), scale_pairs(w[2 * p + 1]->groups[i]));
    OCTAVO_UNROLL
    for (int c = 0; c < 8; ++c) {
      __m512i codes[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        codes[p] = chunk(w[2 * p]->groups[i], w[2 * p + 1]->groups[i], c);
        pin(codes[p]);
      }
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          if (c % kRun == 0) sum[p][t] = _mm512_setzero_si512();
          sum[p][t] = _mm512_dpbusd_epi32(sum[p][t], codes[p], broadcast16(x[t].q + 4 * c));
          pin(sum[p][t]);
          if (c % kRun != kRun - 1) continue;
          if constexpr (kGroupScales<G>) sum[p][t] = _mm512_mullo_epi32(sum[p][t], half_of(pairs[p], c / 4));
          dot[p][t] = c < kRun ? sum[p][t] : _mm512_add_epi32(dot[p][t], sum[p][t]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const Block &a = *w[2 * p], &b = *w[2 * p + 1];
      const __m512 scale = both(block_scale(a), block_scale(b));
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m512 scales = _mm512_mul_ps(scale, _mm512_set1_ps(x[t].scale));
        const __m512i halves = broadcast16(x[t].half_sums);
        if constexpr (code_offset<W>() > 0) {
          const __m512i sums = _mm512_madd_epi16(pairs[p], halves);
          dot[p][t] = _mm512_sub_epi32(dot[p][t], _mm512_mullo_epi32(sums, _mm512_set1_epi32(code_offset<W>())));
        }
        if constexpr (kHasZeros<W>) {
          dot[p][t] = _mm512_sub_epi32(dot[p][t], _mm512_madd_epi16(both(zero_pairs(a), zero_pairs(b)), halves));
        }
        acc[p][t] = _mm512_fmadd_ps(scales, _mm512_cvtepi32_ps(dot[p][t]), acc[p][t]);
        if constexpr (kMinima<W>) {
          const __m512 mins = _mm512_mul_ps(load_half16(a.min, b.min), _mm512_set1_ps(x[t].scale));
          const __m512i integers = both(min_pairs(a.groups[i]), min_pairs(b.groups[i]));
          acc[p][t] = _mm512_fnmadd_ps(mins, _mm512_cvtepi32_ps(_mm512_madd_epi16(integers, halves)), acc[p][t]);
        }
      }
    }
  }

  static OCTAVO_INLINE __m512 weights_at(const Block* const* panels, const Outlier& x) {
    const int block = x.group / W::kGroups;
    return both(outlier_weights(panels[0][block], x), outlier_weights(panels[1][block], x));
  }
};

// With few tokens memory sets the pace, and one stream of single panels is read faster than two.
template <class Block, TileKernel ScaledKernels::* kFewTokens>
void tile(const LinearTile& tile) {
  if (tile.slots < kTokenSlots) return (kScaledAvx2.*kFewTokens)(tile);
  quantized_tile<Scaled<Block>>(tile);
}

using K = ScaledKernels;

}  // namespace

const ScaledKernels kScaledAvx512{tile<BlockQ2_K, &K::q2_k>,       tile<BlockQ3_K, &K::q3_k>,
                                  tile<BlockQ4_K, &K::q4_k>,       tile<BlockQ5_K, &K::q5_k>,
                                  tile<BlockQ6_K, &K::q6_k>,       tile<BlockIQ4_NL, &K::iq4_nl>,
                                  tile<BlockIQ4_XS, &K::iq4_xs>,   tile<BlockMXFP4, &K::mxfp4>,
                                  tile<BlockInt4<1>, &K::int4x32>, tile<BlockInt4<4>, &K::int4x128>};

}  // namespace octavo
