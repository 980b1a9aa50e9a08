#include <algorithm>

#include "backend/cpu/baseline_tile.h"
#include "backend/cpu/scaled_codes.h"

// Plain loops over the layouts of scaled_blocks.h.
namespace octavo {
namespace {

using namespace cpu;

// Integers of element k of a group: w = scale * (this) - min * (its m).
template <class Block>
int scaled_code(const Block& w, const typename Block::Group& g, int r, int k) {
  return group_scale(g, r, k / 16) * code_value(w, r, group_code(g, r, k));
}

template <class Block>
void add_outliers(const LinearTile& tile, const Block* panel, int token, float* acc) {
  const auto& list = *reinterpret_cast<const Outliers*>(tile.outliers + token * tile.outliers_stride);
  for (const Outlier* x = list.entries; x != list.entries + list.count; ++x) {
    const Block& w = panel[x->group / Block::kGroups];
    const auto& g = w.groups[x->group % Block::kGroups];
    const int k = outlier_place(*x);
    for (int r = 0; r < kGroupRows; ++r) {
      float value = block_scale(w, r) * static_cast<float>(scaled_code(w, g, r, k));
      if constexpr (kHasMin<Block>) value -= f16_to_f32(w.min[r]) * static_cast<float>(group_min(g, r, k / 16));
      acc[r] += value * x->value;
    }
  }
}

template <class Block>
void scaled_tile(const LinearTile& tile) {
  const int blocks = tile.k / (kGroup * Block::kGroups);
  const auto* w = reinterpret_cast<const Block*>(tile.weights);
  for (int row = 0; row < tile.rows; row += kGroupRows, w += blocks) {
    float acc[4][kGroupRows];
    for (int token = 0; token < tile.m; token += 4) {
      const int count = tile.m - token < 4 ? tile.m - token : 4;
      for (auto& a : acc) std::fill(a, a + kGroupRows, 0.0f);
      for (int b = 0; b < blocks; ++b) {
        for (int i = 0; i < Block::kGroups; ++i) {
          const auto& g = w[b].groups[i];
          for (int r = 0; r < kGroupRows; ++r) {
            int codes[kGroup];
            for (int k = 0; k < kGroup; ++k) codes[k] = scaled_code(w[b], g, r, k);
            const float scale = block_scale(w[b], r);
            for (int t = 0; t < count; ++t) {
              const auto& x = TokenGroups<QuantizedGroup8>(tile, token + t)[b * Block::kGroups + i];
              int dot = 0;
              for (int k = 0; k < kGroup; ++k) dot += codes[k] * x.q[k];
              acc[t][r] += scale * x.scale * static_cast<float>(dot);
              if constexpr (kHasMin<Block>) {
                const int minima = group_min(g, r, 0) * x.half_sums[0] + group_min(g, r, 1) * x.half_sums[1];
                acc[t][r] -= f16_to_f32(w[b].min[r]) * x.scale * static_cast<float>(minima);
              }
            }
          }
        }
      }
      for (int t = 0; t < count; ++t) {
        add_outliers(tile, w, token + t, acc[t]);
        store_outputs(tile, token + t, row, kGroupRows, acc[t]);
      }
    }
  }
}

}  // namespace

const ScaledKernels kScaledBaseline{scaled_tile<BlockQ2_K>,   scaled_tile<BlockQ3_K>,  scaled_tile<BlockQ4_K>,
                                    scaled_tile<BlockQ5_K>,   scaled_tile<BlockQ6_K>,  scaled_tile<BlockIQ4_NL>,
                                    scaled_tile<BlockIQ4_XS>, scaled_tile<BlockMXFP4>, scaled_tile<BlockInt4<1>>,
                                    scaled_tile<BlockInt4<4>>};

}  // namespace octavo
