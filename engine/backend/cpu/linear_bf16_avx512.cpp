#include "backend/cpu/avx512_ops.h"

// bf16 weights times bf16 activations: pairs of k into float32 sums. One chain of dot products per output in the order
// of k, kept through memory between blocks of k, so every shape of the loop gives the same bits.
namespace octavo {
namespace {

using cpu::kDenseRows;

constexpr int kBlockPairs = 256;  // of k: two panels' slices of that stay in L1 while the tokens pass
constexpr int kMaxTokens = 12;    // two panels by twelve tokens: 24 accumulators of 32 registers
constexpr size_t kPairBytes = 2 * kDenseRows * sizeof(uint16_t);  // of a panel: a cache line

// Two neighbours of k lie one after the other, each with its rows r and r + 8 side by side (see bf16_position).
// To [16 rows][2 of k].
class PairOrder {
 public:
  PairOrder() {
    alignas(64) uint16_t from[32];
    for (int row = 0; row < 16; ++row) {
      for (int i = 0; i < 2; ++i) from[2 * row + i] = static_cast<uint16_t>(16 * i + cpu::bf16_position(row));
    }
    index_ = _mm512_load_si512(from);
    pin(index_);
  }
  OCTAVO_INLINE __m512bh load(const char* pairs) const {
    return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(index_, _mm512_loadu_si512(pairs)));
  }
  // The first of the two only, zeros for the other.
  OCTAVO_INLINE __m512bh load_single(const char* pairs) const {
    return reinterpret_cast<__m512bh>(_mm512_permutexvar_epi16(index_, _mm512_maskz_loadu_epi16(0xffff, pairs)));
  }

 private:
  __m512i index_;
};

OCTAVO_INLINE void add_pairs(__m512bh w, const char* x, __m512& sum) {
  sum = _mm512_dpbf16_ps(sum, w, reinterpret_cast<__m512bh>(broadcast16(x)));
  asm("" : "+v"(sum));
}

// Pairs [begin, end) of P panels for T tokens. `panel`: bytes from panel to panel; `ahead`: bytes to what is fetched
// meanwhile, `step` for each pair.
template <int P, int T>
OCTAVO_INLINE void multiply(const PairOrder& order, const char* w, size_t panel, const char* x, size_t ldx, int begin,
                            int end, const char* ahead, size_t step, __m512 (&acc)[P][T]) {
  w += begin * kPairBytes;
  x += begin * sizeof(uint32_t);
  for (int i = begin; i < end; ++i, w += kPairBytes, x += sizeof(uint32_t), ahead += step) {
    __m512bh weights[P];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      _mm_prefetch(ahead + p * panel, _MM_HINT_T0);
      weights[p] = order.load(w + p * panel);
    }
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      OCTAVO_UNROLL
      for (int p = 0; p < P; ++p) add_pairs(weights[p], x + t * ldx, acc[p][t]);
    }
  }
}

// What is left of an odd k.
template <int P, int T>
OCTAVO_INLINE void multiply_last(const PairOrder& order, const char* w, size_t panel, const char* x, size_t ldx,
                                 int pair, __m512 (&acc)[P][T]) {
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    const __m512bh weights = order.load_single(w + p * panel + pair * kPairBytes);
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) add_pairs(weights, x + t * ldx + pair * sizeof(uint32_t), acc[p][t]);
  }
}

// Few tokens: all of k at once, P panels side by side to hide the latency of the dot product.
template <int P, int T>
OCTAVO_INLINE int few_tokens(const PairOrder& order, const LinearTile& tile, int row) {
  const size_t panel = static_cast<size_t>(tile.k) * kDenseRows * sizeof(uint16_t);
  const auto* x = reinterpret_cast<const char*>(tile.x);
  const int pairs = tile.k / 2;
  constexpr int kFar = 512 / kPairBytes;
  const int near = pairs > kFar ? pairs - kFar : 0;
  for (; row + (P - 1) * kDenseRows < tile.rows; row += P * kDenseRows) {
    const auto* w = reinterpret_cast<const char*>(tile.weights) + row / kDenseRows * panel;
    __m512 acc[P][T];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) acc[p][t] = _mm512_setzero_ps();
    }
    // The panels' own streams, and near their ends the beginnings of the next P panels.
    const char* far = w + kFar * kPairBytes;
    multiply<P, T>(order, w, panel, x, tile.x_stride, 0, near, far, kPairBytes, acc);
    far += (P - 1) * panel + near * kPairBytes;
    multiply<P, T>(order, w, panel, x, tile.x_stride, near, pairs, far, kPairBytes, acc);
    if (tile.k % 2) multiply_last<P, T>(order, w, panel, x, tile.x_stride, pairs, acc);
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) store_outputs(tile, t, row + p * kDenseRows, acc[p][t]);
    }
  }
  return row;
}

// Pairs [begin, end) of P panels for T tokens; partial sums rest in the tile's scratch between blocks.
template <int P, int T>
__attribute__((noinline)) void block(const PairOrder& order, const LinearTile& tile, int row, int token, int begin,
                                     int end, const char* ahead, size_t step) {
  const size_t panel = static_cast<size_t>(tile.k) * kDenseRows * sizeof(uint16_t);
  const auto* w = reinterpret_cast<const char*>(tile.weights) + row / kDenseRows * panel;
  const auto* x = reinterpret_cast<const char*>(tile.x) + token * tile.x_stride;
  auto partial = [&](int p, int t) {
    return tile.scratch + ((row / kDenseRows + p) * tile.m + token + t) * kDenseRows;
  };
  const bool last = end == tile.k / 2;
  __m512 acc[P][T];
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) acc[p][t] = begin == 0 ? _mm512_setzero_ps() : _mm512_loadu_ps(partial(p, t));
  }
  multiply<P, T>(order, w, panel, x, tile.x_stride, begin, end, ahead, step, acc);
  if (last && tile.k % 2) multiply_last<P, T>(order, w, panel, x, tile.x_stride, end, acc);
  OCTAVO_UNROLL
  for (int p = 0; p < P; ++p) {
    OCTAVO_UNROLL
    for (int t = 0; t < T; ++t) {
      if (last) {
        store_outputs(tile, token + t, row + p * kDenseRows, acc[p][t]);
      } else {
        _mm512_storeu_ps(partial(p, t), acc[p][t]);
      }
    }
  }
}

template <int P, int T = kMaxTokens>
OCTAVO_INLINE void block_of(int count, const PairOrder& order, const LinearTile& tile, int row, int token, int begin,
                            int end, const char* ahead, size_t step) {
  if (count == T) return block<P, T>(order, tile, row, token, begin, end, ahead, step);
  if constexpr (T > 4) block_of<P, T - 1>(count, order, tile, row, token, begin, end, ahead, step);
}

void many_tokens(const PairOrder& order, const LinearTile& tile) {
  const int blocks = (tile.m + kMaxTokens - 1) / kMaxTokens, pairs = tile.k / 2;
  const size_t panel = static_cast<size_t>(tile.k) * kDenseRows * sizeof(uint16_t);
  const int rounds = blocks == 1 || pairs == 0 ? 1 : (pairs + kBlockPairs - 1) / kBlockPairs;
  const auto* weights = reinterpret_cast<const char*>(tile.weights);
  for (int round = 0; round < rounds; ++round) {
    const int begin = pairs * round / rounds, end = pairs * (round + 1) / rounds;
    for (int row = 0; row < tile.rows;) {
      const int panels = row + kDenseRows < tile.rows ? 2 : 1, after = row + panels * kDenseRows;
      // While the tokens pass one slice, the next one comes from memory, an equal share in each block of tokens.
      const char* slice = weights + row / kDenseRows * panel + begin * kPairBytes;
      const char* next = after < tile.rows || round + 1 == rounds ? slice + panels * panel : weights + end * kPairBytes;
      const size_t step = (kPairBytes + blocks - 1) / blocks;
      // Token blocks of nearly equal size: a lone last token would leave the multipliers waiting.
      for (int b = 0; b < blocks; ++b) {
        const int token = tile.m * b / blocks, count = tile.m * (b + 1) / blocks - token;
        const char* ahead = blocks == 1 ? slice + 1024 : next + b * (end - begin) * step;
        if (panels == 2) {
          block_of<2>(count, order, tile, row, token, begin, end, ahead, step);
        } else {
          block_of<1>(count, order, tile, row, token, begin, end, ahead, step);
        }
      }
      row = after;
    }
  }
}

void bf16_tile(const LinearTile& tile) {
  const PairOrder order;
  int row = 0;
  switch (tile.m) {
    case 1:
      row = few_tokens<4, 1>(order, tile, row);
      few_tokens<1, 1>(order, tile, row);
      break;
    case 2:
      row = few_tokens<4, 2>(order, tile, row);
      few_tokens<1, 2>(order, tile, row);
      break;
    case 3:
      row = few_tokens<4, 3>(order, tile, row);
      few_tokens<1, 3>(order, tile, row);
      break;
    default:
      many_tokens(order, tile);
  }
}

// To the nearest, ties to even; an odd k gets a zero as partner.
void round_to_bf16(const float* x, int k, uint16_t* out) {
  int i = 0;
  for (; i + 16 <= k; i += 16) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(out + i),
                        reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_loadu_ps(x + i))));
  }
  if (i == k) return;
  const auto valid = static_cast<__mmask16>((1u << (k - i)) - 1), pairs = static_cast<__mmask16>(valid | valid << 1);
  const __m256i rest = reinterpret_cast<__m256i>(_mm512_cvtneps_pbh(_mm512_maskz_loadu_ps(valid, x + i)));
  _mm256_mask_storeu_epi16(out + i, (k - i) % 2 ? pairs : valid, rest);
}

}  // namespace

const Bf16Kernels kBf16Avx512{bf16_tile, round_to_bf16};

}  // namespace octavo
