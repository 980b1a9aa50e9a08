#pragma once
#include "backend/cuda/platform.h"

// Sums and maxima over a block of kRowThreads threads, in one order.
namespace octavo::cuda {

inline constexpr int kRowThreads = 256;  // of a block that has one row

struct Sum {
  static __device__ float apply(float a, float b) { return a + b; }
};
struct Max {  // NaN loses
  static __device__ float apply(float a, float b) { return fmaxf(a, b); }
};

template <class Op>
__device__ float reduce_warp(float value) {
#pragma unroll
  for (int lanes = 16; lanes > 0; lanes /= 2) value = Op::apply(value, __shfl_xor_sync(0xffffffffu, value, lanes));
  return value;
}

// For every thread. scratch: [kRowThreads / 32] in shared memory, free again after the next barrier.
template <class Op>
__device__ float reduce_block(float value, float* scratch) {
  value = reduce_warp<Op>(value);
  if (threadIdx.x % 32 == 0) scratch[threadIdx.x / 32] = value;
  __syncthreads();
  value = scratch[0];
#pragma unroll
  for (int warp = 1; warp < kRowThreads / 32; ++warp) value = Op::apply(value, scratch[warp]);
  return value;
}

}  // namespace octavo::cuda
