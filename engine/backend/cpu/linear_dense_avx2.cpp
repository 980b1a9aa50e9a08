#include "backend/cpu/avx2_ops.h"

// Dense weights times f32 activations: T tokens by P panels of 16 rows. One chain of fused multiply-adds per output in
// the order of k, kept through memory between blocks of k, so every shape of the loop gives the same bits.
namespace octavo {
namespace {

using cpu::kDenseRows;

constexpr size_t kSliceBytes = 16384;  // of a panel: stays in L1 while the tokens pass
constexpr int kMaxTokens = 6;          // 6 x 16: 12 accumulators of 16 registers

struct F32 {
  using Element = float;
  static OCTAVO_INLINE void load(const float* w, __m256& low, __m256& high) {
    low = _mm256_loadu_ps(w);
    high = _mm256_loadu_ps(w + 8);
  }
};
struct F16 {
  using Element = uint16_t;
  static OCTAVO_INLINE void load(const uint16_t* w, __m256& low, __m256& high) {
    low = load_half8(w);
    high = load_half8(w + 8);
  }
};
struct BF16 {
  using Element = uint16_t;
  static OCTAVO_INLINE void load(const uint16_t* w, __m256& low, __m256& high) {
    const __m256i pairs = load32(w);
    low = _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16));
    high = _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(static_cast<int>(0xffff0000u))));
  }
};

// What to fetch meanwhile: `step` bytes for each k, from every panel.
struct Ahead {
  const char* from;
  size_t step;
};

template <class Weight, int T, int P, bool Fetch>
OCTAVO_INLINE void multiply(const typename Weight::Element* w, size_t panel, const float* x, size_t ldx, int k,
                            Ahead ahead, __m256 (&acc)[P][T][2]) {
  for (int i = 0; i < k; ++i) {
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      if (Fetch) _mm_prefetch(ahead.from + p * panel * sizeof(*w) + i * ahead.step, _MM_HINT_T0);
      __m256 low, high;
      Weight::load(w + p * panel + i * kDenseRows, low, high);
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        const __m256 b = _mm256_broadcast_ss(x + t * ldx + i);
        acc[p][t][0] = _mm256_fmadd_ps(b, low, acc[p][t][0]);
        acc[p][t][1] = _mm256_fmadd_ps(b, high, acc[p][t][1]);
        pin(acc[p][t][0]);
        pin(acc[p][t][1]);
      }
    }
  }
}

// Few tokens: all of k at once, P panels side by side to hide the latency of the multiply-add.
template <class Weight, int T, int P>
OCTAVO_INLINE int few_tokens(const LinearTile& tile, int row) {
  const size_t panel = static_cast<size_t>(tile.k) * kDenseRows;
  const auto* x = reinterpret_cast<const float*>(tile.x);
  for (; row + (P - 1) * kDenseRows < tile.rows; row += P * kDenseRows) {
    const auto* w = reinterpret_cast<const typename Weight::Element*>(tile.weights) + row / kDenseRows * panel;
    __m256 acc[P][T][2];
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) acc[p][t][0] = acc[p][t][1] = _mm256_setzero_ps();
    }
    // The panels' own streams, and near their ends the beginnings of the next P panels.
    constexpr size_t kRow = kDenseRows * sizeof(typename Weight::Element), kFar = 512 / kRow;
    const size_t ldx = tile.x_stride / sizeof(float);
    const int near = tile.k > static_cast<int>(kFar) ? tile.k - static_cast<int>(kFar) : 0;
    const char* far = reinterpret_cast<const char*>(w) + kFar * kRow;
    multiply<Weight, T, P, (T > 1)>(w, panel, x, ldx, near, {far, kRow}, acc);
    far += (P - 1) * panel * sizeof(*w);
    multiply<Weight, T, P, true>(w + near * kDenseRows, panel, x + near, ldx, tile.k - near, {far + near * kRow, kRow},
                                 acc);
    OCTAVO_UNROLL
    for (int p = 0; p < P; ++p) {
      OCTAVO_UNROLL
      for (int t = 0; t < T; ++t) {
        store_outputs(tile, t, row + p * kDenseRows, acc[p][t][0]);
        store_outputs(tile, t, row + p * kDenseRows + 8, acc[p][t][1]);
      }
    }
  }
  return row;
}

// One block of k of one panel for T tokens; partial sums rest in the tile's scratch between blocks.
template <class Weight, int T>
OCTAVO_INLINE void block(const LinearTile& tile, int row, int token, int k0, int k1, Ahead ahead) {
  const size_t panel = static_cast<size_t>(tile.k) * kDenseRows;
  const auto* w = reinterpret_cast<const typename Weight::Element*>(tile.weights) + row / kDenseRows * panel;
  const size_t ldx = tile.x_stride / sizeof(float);
  const auto* x = reinterpret_cast<const float*>(tile.x) + token * ldx + k0;
  float* partial = tile.scratch + (row / kDenseRows * tile.m + token) * kDenseRows;
  __m256 acc[1][T][2];
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) {
    OCTAVO_UNROLL
    for (int h = 0; h < 2; ++h) {
      acc[0][t][h] = k0 == 0 ? _mm256_setzero_ps() : _mm256_loadu_ps(partial + t * kDenseRows + 8 * h);
    }
  }
  multiply<Weight, T, 1, true>(w + static_cast<size_t>(k0) * kDenseRows, panel, x, ldx, k1 - k0, ahead, acc);
  OCTAVO_UNROLL
  for (int t = 0; t < T; ++t) {
    OCTAVO_UNROLL
    for (int h = 0; h < 2; ++h) {
      if (k1 == tile.k) {
        store_outputs(tile, token + t, row + 8 * h, acc[0][t][h]);
      } else {
        _mm256_storeu_ps(partial + t * kDenseRows + 8 * h, acc[0][t][h]);
      }
    }
  }
}

template <class Weight>
void many_tokens(const LinearTile& tile) {
  const int blocks = (tile.m + kMaxTokens - 1) / kMaxTokens;
  constexpr size_t kRow = kDenseRows * sizeof(typename Weight::Element);
  const int block_k = blocks == 1 ? tile.k : static_cast<int>(kSliceBytes / kRow);
  const size_t panel = tile.k * kRow;
  for (int k0 = 0; k0 < tile.k; k0 += block_k) {
    const int k1 = k0 + block_k < tile.k ? k0 + block_k : tile.k;
    for (int row = 0; row < tile.rows; row += kDenseRows) {
      // While the tokens pass one slice, the next one comes from memory, an equal share in each block of tokens.
      const bool last = row + kDenseRows >= tile.rows;
      const char* slice = reinterpret_cast<const char*>(tile.weights) + row / kDenseRows * panel + k0 * kRow;
      const char* next = last && k1 < tile.k ? reinterpret_cast<const char*>(tile.weights) + k1 * kRow : slice + panel;
      const size_t step = (kRow + blocks - 1) / blocks;
      if (blocks == 1) next = slice + 1024;
      // Token blocks of nearly equal size: a lone last token would leave the multipliers waiting.
      for (int b = 0; b < blocks; ++b) {
        const int token = tile.m * b / blocks, count = tile.m * (b + 1) / blocks - token;
        const Ahead ahead{next + b * (k1 - k0) * step, step};
        switch (count) {
          case 6:
            block<Weight, 6>(tile, row, token, k0, k1, ahead);
            break;
          case 5:
            block<Weight, 5>(tile, row, token, k0, k1, ahead);
            break;
          case 4:
            block<Weight, 4>(tile, row, token, k0, k1, ahead);
            break;
          case 3:
            block<Weight, 3>(tile, row, token, k0, k1, ahead);
            break;
          default:
            break;  // not reached: m >= 4
        }
      }
    }
  }
}

template <class Weight>
void dense_tile(const LinearTile& tile) {
  int row = 0;
  switch (tile.m) {
    case 1:
      row = few_tokens<Weight, 1, 4>(tile, row);
      few_tokens<Weight, 1, 1>(tile, row);
      break;
    case 2:
      row = few_tokens<Weight, 2, 2>(tile, row);
      few_tokens<Weight, 2, 1>(tile, row);
      break;
    case 3:
      row = few_tokens<Weight, 3, 2>(tile, row);
      few_tokens<Weight, 3, 1>(tile, row);
      break;
    default:
      many_tokens<Weight>(tile);
  }
}

}  // namespace

const DenseKernels kDenseAvx2{dense_tile<F32>, dense_tile<F16>, dense_tile<BF16>};

}  // namespace octavo
