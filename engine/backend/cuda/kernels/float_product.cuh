#pragma once
#include "backend/cuda/kernels/product.cuh"
#include "backend/cuda/kernels/reduce.cuh"

// y = x * w^T in f32. A warp has four rows of w and eight tokens; lane l sums columns 4 l .. 4 l + 3 of every 128, and
// the lanes' sums are added in one tree, for every number of tokens.
namespace octavo::cuda {

inline constexpr int kFloatRows = 4;
inline constexpr int kFloatTokens = 8;
inline constexpr int kFloatWarps = 4;  // of a block, side by side

static __global__ void __launch_bounds__(32 * kFloatWarps) float_product(const ProductArgs p) {
  const int lane = threadIdx.x % 32, columns = p.slabs * kSlab;
  const int first_row = (blockIdx.x * kFloatWarps + threadIdx.x / 32) * kFloatRows;
  const TokenTile tokens = token_tile(p, kFloatTokens);
  if (tokens.count <= 0) return;
  const auto four = [&](const void* matrix, int row, int column) {
    return __ldg(reinterpret_cast<const float4*>(static_cast<const float*>(matrix) +
                                                 static_cast<int64_t>(row) * columns + column));
  };
  int x_rows[kFloatTokens];
#pragma unroll
  for (int i = 0; i < kFloatTokens; ++i) x_rows[i] = x_row(p, tokens, i);
  float acc[kFloatRows][kFloatTokens] = {};
  for (int column = 4 * lane; column < columns; column += 128) {
    float4 w[kFloatRows];
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) w[r] = four(tokens.weight.codes, min(first_row + r, p.n - 1), column);
#pragma unroll
    for (int i = 0; i < kFloatTokens; ++i) {
      const float4 x = four(p.x, x_rows[i], column);
#pragma unroll
      for (int r = 0; r < kFloatRows; ++r) {
        acc[r][i] = fmaf(w[r].x, x.x, acc[r][i]);
        acc[r][i] = fmaf(w[r].y, x.y, acc[r][i]);
        acc[r][i] = fmaf(w[r].z, x.z, acc[r][i]);
        acc[r][i] = fmaf(w[r].w, x.w, acc[r][i]);
      }
    }
  }
#pragma unroll
  for (int i = 0; i < kFloatTokens; ++i) {
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) {
      const float sum = reduce_warp<Sum>(acc[r][i]);
      if (lane == (r * kFloatTokens + i) % 32) store_output(p, tokens, i, first_row + r, sum);
    }
  }
}

}  // namespace octavo::cuda
