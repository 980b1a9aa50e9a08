#pragma once
#include "backend/cuda/kernels/product.cuh"
#include "backend/cuda/kernels/reduce.cuh"

// y = x * w^T in f32. A warp has four rows of w and eight tokens; lane l sums columns 4 l .. 4 l + 3 of every 128, and
// the lanes' sums are added in one tree, for every number of tokens.
namespace octavo::cuda {

inline constexpr int kFloatRows = 4;
inline constexpr int kFloatTokens = 8;
inline constexpr int kFloatWarps = 4;  // of a block, side by side

struct FloatProductArgs {
  const float* w = nullptr;     // [n, slabs * kSlab]
  const float* x = nullptr;     // [m, slabs * kSlab]
  const float* bias = nullptr;  // [n] or null
  float* y = nullptr;           // [m, n], row stride ldy
  int64_t ldy = 0;
  int m = 0;
  int n = 0;
  int slabs = 0;
  bool accumulate = false;
};

static __global__ void __launch_bounds__(32 * kFloatWarps) float_product(const FloatProductArgs p) {
  const int lane = threadIdx.x % 32, columns = p.slabs * kSlab;
  const int first_row = (blockIdx.x * kFloatWarps + threadIdx.x / 32) * kFloatRows,
            first_token = blockIdx.y * kFloatTokens;
  const auto four = [&](const float* matrix, int row, int last, int column) {
    return __ldg(reinterpret_cast<const float4*>(matrix + static_cast<int64_t>(min(row, last)) * columns + column));
  };
  float acc[kFloatRows][kFloatTokens] = {};
  for (int column = 4 * lane; column < columns; column += 128) {
    float4 w[kFloatRows];
#pragma unroll
    for (int r = 0; r < kFloatRows; ++r) w[r] = four(p.w, first_row + r, p.n - 1, column);
#pragma unroll
    for (int i = 0; i < kFloatTokens; ++i) {
      const float4 x = four(p.x, first_token + i, p.m - 1, column);
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
      float sum = reduce_warp<Sum>(acc[r][i]);
      const int row = first_row + r, token = first_token + i;
      if (lane != (r * kFloatTokens + i) % 32 || row >= p.n || token >= p.m) continue;
      if (p.bias) sum += p.bias[row];
      float* y = p.y + token * p.ldy + row;
      *y = p.accumulate ? *y + sum : sum;
    }
  }
}

}  // namespace octavo::cuda
