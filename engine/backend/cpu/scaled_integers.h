#pragma once
#include <type_traits>

#include "backend/cpu/scaled_chunk.h"

// What stands beside the codes in scaled_blocks.h, on AVX2.
namespace octavo {
namespace {

using namespace cpu;

template <class W>
constexpr bool kHasTable = requires { W::kValues; };
template <class W>
constexpr bool kSmallTable = std::is_same_v<W, BlockMXFP4>;  // its values span fewer than 5 bits
template <class W>
constexpr bool kHasZeros = requires(W w) { w.zero; };

// What is taken off the codes; values of a table are shifted by it to be positive.
template <class W>
constexpr int code_offset() {
  if constexpr (kHasTable<W>) return kSmallTable<W> ? 12 : 128;
  if constexpr (requires { W::kOffset; }) return W::kOffset;
  return 0;
}

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
OCTAVO_INLINE __m256i zero_pairs(const W& w) {
  return twice(_mm256_cvtepu8_epi32(load8(w.zero)));
}

// The weights that meet one activation.
template <class W>
OCTAVO_INLINE __m256 outlier_weights(const W& w, const Outlier& x) {
  using G = typename W::Group;
  const G& g = w.groups[x.group % W::kGroups];
  const int place = outlier_place(x);
  __m256i codes = scaled_column<G>(
      place, [&](size_t offset) { return load32(reinterpret_cast<const char*>(&g) + offset); },
      [](__m256i v, int n) { return _mm256_srl_epi32(v, _mm_cvtsi32_si128(n)); });
  if constexpr (kHasTable<W>) {
    codes = _mm256_shuffle_epi8(table(W::kValues), codes);
    codes = _mm256_srai_epi32(_mm256_slli_epi32(codes, 24), 24);
  } else if constexpr (kHasZeros<W>) {
    codes = _mm256_sub_epi32(codes, _mm256_cvtepu8_epi32(load8(w.zero)));
  } else {
    codes = _mm256_sub_epi32(codes, _mm256_set1_epi32(code_offset<W>()));
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

}  // namespace
}  // namespace octavo
