#include "backend/cpu/avx512_ops.h"
#include "backend/cpu/quantized_tile.h"

// 8-bit weights times 8-bit activations, one dot product instruction for four of k: half the instructions that 16-bit
// activations take.
namespace octavo {
namespace {

using cpu::BlockQ8_0;

// Two panels side by side.
struct Wide {
  using Vector = __m512;
  using Integers = __m512i;
  static constexpr int kPanels = 2;

  static OCTAVO_INLINE Vector zero() { return _mm512_setzero_ps(); }
  static OCTAVO_INLINE Integers all(int32_t x) { return _mm512_set1_epi32(x); }
  static OCTAVO_INLINE Integers broadcast(const void* p) { return broadcast16(p); }
  static OCTAVO_INLINE Integers multiply_pairs(Integers a, Integers b) { return _mm512_madd_epi16(a, b); }
  static OCTAVO_INLINE Integers dot(Integers sum, Integers codes, Integers q) {
    return _mm512_dpbusd_epi32(sum, codes, q);
  }
  static OCTAVO_INLINE Integers order(Integers from, Integers codes) { return _mm512_permutexvar_epi16(from, codes); }
  static OCTAVO_INLINE Integers flip(Integers a, Integers b) { return _mm512_xor_si512(a, b); }
  static OCTAVO_INLINE Vector to_float(Integers v) { return _mm512_cvtepi32_ps(v); }
  static OCTAVO_INLINE Vector all(float x) { return _mm512_set1_ps(x); }
  static OCTAVO_INLINE Vector multiply(Vector a, Vector b) { return _mm512_mul_ps(a, b); }
  static OCTAVO_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm512_fmadd_ps(a, b, c); }
  static OCTAVO_INLINE Integers codes(const BlockQ8_0* const* w, int at) {
    return load64(w[0]->codes + at, w[1]->codes + at);
  }
  static OCTAVO_INLINE Vector scale(const BlockQ8_0* const* w) { return load_half16(w[0]->scale, w[1]->scale); }
  static OCTAVO_INLINE Integers words(const int8_t* a, const int8_t* b) { return _mm512_cvtepi16_epi32(load32(a, b)); }
  static OCTAVO_INLINE Integers byte(Integers words, int shift) {
    return _mm512_srai_epi32(_mm512_sll_epi32(words, _mm_cvtsi32_si128(shift)), 24);
  }
};

struct Narrow {
  using Vector = __m256;
  using Integers = __m256i;
  static constexpr int kPanels = 1;

  static OCTAVO_INLINE Vector zero() { return _mm256_setzero_ps(); }
  static OCTAVO_INLINE Integers all(int32_t x) { return _mm256_set1_epi32(x); }
  static OCTAVO_INLINE Integers broadcast(const void* p) { return broadcast4(p); }
  static OCTAVO_INLINE Integers multiply_pairs(Integers a, Integers b) { return _mm256_madd_epi16(a, b); }
  static OCTAVO_INLINE Integers dot(Integers sum, Integers codes, Integers q) {
    return _mm256_dpbusd_epi32(sum, codes, q);
  }
  static OCTAVO_INLINE Integers order(Integers from, Integers codes) { return _mm256_permutexvar_epi16(from, codes); }
  static OCTAVO_INLINE Integers flip(Integers a, Integers b) { return _mm256_xor_si256(a, b); }
  static OCTAVO_INLINE Vector to_float(Integers v) { return _mm256_cvtepi32_ps(v); }
  static OCTAVO_INLINE Vector all(float x) { return _mm256_set1_ps(x); }
  static OCTAVO_INLINE Vector multiply(Vector a, Vector b) { return _mm256_mul_ps(a, b); }
  static OCTAVO_INLINE Vector fma(Vector a, Vector b, Vector c) { return _mm256_fmadd_ps(a, b, c); }
  static OCTAVO_INLINE Integers codes(const BlockQ8_0* const* w, int at) { return load32(w[0]->codes + at); }
  static OCTAVO_INLINE Vector scale(const BlockQ8_0* const* w) { return load_half8(w[0]->scale); }
  static OCTAVO_INLINE Integers words(const int8_t* a, const int8_t*) {
    return _mm256_cvtepi16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(a)));
  }
  static OCTAVO_INLINE Integers byte(Integers words, int shift) {
    return _mm256_srai_epi32(_mm256_sll_epi32(words, _mm_cvtsi32_si128(shift)), 24);
  }
};

template <class V>
struct Bytes {
  using Block = BlockQ8_0;
  using Group = QuantizedGroup8;
  using Vector = typename V::Vector;
  using Integers = typename V::Integers;
  static constexpr int kPanels = V::kPanels;
  static constexpr int kAhead = 10;

  static OCTAVO_INLINE Vector zero() { return V::zero(); }

  // Two chunks of k = 2c, 2c + 1 by 8 rows, for each panel, to four of k by row.
  static OCTAVO_INLINE Integers four_by_row() {
    alignas(64) uint16_t from[16 * kPanels];
    for (int row = 0; row < 8 * kPanels; ++row) {
      for (int chunk = 0; chunk < 2; ++chunk) {
        from[2 * row + chunk] = static_cast<uint16_t>(row / 8 * 16 + chunk * 8 + row % 8);
      }
    }
    Integers out;
    __builtin_memcpy(&out, from, sizeof out);
    return out;
  }

  // The instruction takes its first factor unsigned: codes + 128, so 128 times the sum of the activations is too much.
  template <int P, int T>
  static OCTAVO_INLINE void add_group(const Block* const (&w)[P * kPanels], const Group* x, Vector (&acc)[P][T]) {
    const Integers from = four_by_row(), offset = V::all(static_cast<int32_t>(0x80808080u));
    Integers sum[P][T];
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      const Integers extra = V::multiply_pairs(V::broadcast(x[t].half_sums), V::all(static_cast<int32_t>(0xff80ff80u)));
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) sum[p][t] = extra;
    }
    OCTAVO_UNROLL
    for (int c = 0; c < 8; ++c) {
      Integers codes[P];
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) {
        codes[p] = V::flip(V::order(from, V::codes(w + p * kPanels, 32 * c)), offset);
        pin(codes[p]);
      }
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        OCTAVO_UNROLL
        for (int p = 0; p < P; ++p) {
          sum[p][t] = V::dot(sum[p][t], codes[p], V::broadcast(x[t].q + 4 * c));
          pin(sum[p][t]);
        }
      }
    }
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      const Vector scale = V::scale(w + p * kPanels);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        acc[p][t] = V::fma(V::multiply(scale, V::all(x[t].scale)), V::to_float(sum[p][t]), acc[p][t]);
      }
    }
  }

  static OCTAVO_INLINE Vector weights_at(const Block* const* panels, const Outlier& x) {
    const int place = outlier_place(x), at = place / 2 * 16;
    const Block* blocks[kPanels];
    for (int p = 0; p < kPanels; ++p) blocks[p] = panels[p] + x.group;
    const Integers words = V::words(blocks[0]->codes + at, blocks[kPanels - 1]->codes + at);
    return V::multiply(V::scale(blocks), V::to_float(V::byte(words, place % 2 ? 16 : 24)));
  }
};

// With few tokens memory sets the pace, and one stream of single panels is read faster than two.
void tile(const LinearTile& tile) {
  if (tile.slots < kTokenSlots) return quantized_tile<Bytes<Narrow>>(tile);
  quantized_tile<Bytes<Wide>>(tile);
}

}  // namespace

const TileKernel kShortByteAvx512 = tile;

}  // namespace octavo
