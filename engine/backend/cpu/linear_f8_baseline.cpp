#include "backend/cpu/baseline_tile.h"
#include "tensor/float8.h"

namespace octavo {
namespace {

using namespace cpu;

template <int N>
void f8_tile(const LinearTile& tile) {
  constexpr int kTokens = 4;
  const auto* w = reinterpret_cast<const BlockF8<N>*>(tile.weights);
  for (int row = 0; row < tile.rows; row += kDenseRows, w += tile.k / N) {
    for (int token = 0; token < tile.m; token += kTokens) {
      const int count = tile.m - token < kTokens ? tile.m - token : kTokens;
      float acc[kTokens][kDenseRows] = {};
      for (int i = 0; i < tile.k; ++i) {
        const BlockF8<N>& block = w[i / N];
        float weights[kDenseRows];
        for (int r = 0; r < kDenseRows; ++r) weights[r] = e4m3_to_f32(block.codes[i % N][r]) * block.scale[r];
        for (int t = 0; t < count; ++t) {
          const float x = reinterpret_cast<const float*>(tile.x + (token + t) * tile.x_stride)[i];
          for (int r = 0; r < kDenseRows; ++r) acc[t][r] += x * weights[r];
        }
      }
      for (int t = 0; t < count; ++t) store_outputs(tile, token + t, row, kDenseRows, acc[t]);
    }
  }
}

}  // namespace

const F8Kernels kF8Baseline{f8_tile<32>, f8_tile<128>};

}  // namespace octavo
