#pragma once
#include "backend/cuda/kernels/activations.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "ops/params.h"

// Ops on rows of f32. A block has one row, unless stated otherwise.
namespace octavo::cuda {

// 1 / sqrt(mean(x^2) + eps) for every thread.
inline __device__ float rms_factor(const float* x, int dim, float eps, float* scratch) {
  float squares = 0.0f;
  for (int i = threadIdx.x; i < dim; i += kRowThreads) squares = fmaf(x[i], x[i], squares);
  return 1.0f / sqrtf(reduce_block<Sum>(squares, scratch) / static_cast<float>(dim) + eps);
}

static __global__ void __launch_bounds__(kRowThreads) rms_norm_rows(const RmsNormParams p) {
  __shared__ float scratch[kRowThreads / 32];
  const float* x = p.x + blockIdx.x * p.ldx;
  float* out = p.out + blockIdx.x * p.ldo;
  const float factor = rms_factor(x, p.dim, p.eps, scratch);
  for (int i = threadIdx.x; i < p.dim; i += kRowThreads) out[i] = x[i] * factor * p.weight[i];
}

static __global__ void __launch_bounds__(kRowThreads) residual_add_rows(const ResidualAddParams p) {
  __shared__ float scratch[kRowThreads / 32];
  float* x = p.x + blockIdx.x * p.ldx;
  const float* y = p.y + blockIdx.x * p.ldy;
  const float factor = p.norm_weight ? rms_factor(y, p.dim, p.eps, scratch) : 1.0f;
  for (int i = threadIdx.x; i < p.dim; i += kRowThreads) {
    const float value = p.norm_weight ? y[i] * factor * p.norm_weight[i] : y[i];
    x[i] = fmaf(p.scale, value, x[i]);
  }
}

static __global__ void __launch_bounds__(kRowThreads) silu_mul_rows(const SiluMulParams p) {
  const float* x = p.x + blockIdx.x * p.ldx;
  float* out = p.out + blockIdx.x * p.ldo;
  for (int i = threadIdx.x; i < p.dim; i += kRowThreads) {
    out[i] = gated_activation(Prologue::kSiluMul, x[i], x[p.dim + i]);
  }
}

static __global__ void __launch_bounds__(kRowThreads) gather_rows_kernel(const GatherRowsParams p) {
  const float* x = p.x + p.rows[blockIdx.x] * p.ldx;
  float* out = p.out + blockIdx.x * p.ldo;
  for (int i = threadIdx.x; i < p.dim; i += kRowThreads) out[i] = x[i];
}

// Blocks share a row, blockIdx.y is its row.
static __global__ void __launch_bounds__(kRowThreads) scale_logits_rows(const ScaleLogitsParams p) {
  const int i = blockIdx.x * kRowThreads + threadIdx.x;
  if (i >= p.dim) return;
  float& x = p.x[static_cast<int64_t>(blockIdx.y) * p.dim + i];
  x = p.softcap == 0.0f ? x * p.scale : p.softcap * tanhf(x * p.scale / p.softcap);
}

}  // namespace octavo::cuda
