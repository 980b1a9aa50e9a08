#pragma once
#include "backend/cuda/kernels/activations.cuh"
#include "backend/cuda/kernels/reduce.cuh"
#include "backend/cuda/slab_order.h"
#include "backend/cuda/weight_layout.h"

// Rows of activations as products read them: after the prologue, in whole slabs with zeros behind the row's end.
namespace octavo::cuda {

enum class StagedType : uint8_t { kF32, kF16, kBF16 };

struct StageArgs {
  const float* x = nullptr;  // [rows, k] or [rows, 2k], row stride ldx
  int64_t ldx = 0;
  int k = 0;
  int slabs = 0;
  Prologue prologue = Prologue::kNone;
  const float* norm_weight = nullptr;  // [k]
  float eps = 0.0f;
  const int32_t* order = nullptr;  // [k] which column comes where; null: as they are
  void* out = nullptr;             // [rows, slabs * kSlab]
  // f16: a row is divided by a power of two that brings its largest magnitude to [2^14, 2^15), so that neither its
  // range nor its small values are lost.
  float* scale = nullptr;     // [rows] that power
  float* sums = nullptr;      // [rows, slabs * 4] sums of 16 columns of what was written; null: none
  bool halves_order = false;  // within 32 columns, see slab_order.h
};

struct StageRow {
  const StageArgs& p;
  const float* x;
  bool whole;  // four neighbours at a time may be read as one

  __device__ StageRow(const StageArgs& args, int row) : p(args), x(args.x + row * args.ldx) {
    whole = !p.order && p.k % 4 == 0 && p.ldx % 4 == 0 && reinterpret_cast<uintptr_t>(p.x) % 16 == 0 &&
            reinterpret_cast<uintptr_t>(p.norm_weight) % 16 == 0;
  }

  __device__ void read(const float* from, int column, float (&v)[4]) const {
    if (whole) {
      const float4 four = column < p.k ? *reinterpret_cast<const float4*>(from + column) : float4{};
      v[0] = four.x;
      v[1] = four.y;
      v[2] = four.z;
      v[3] = four.w;
      return;
    }
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      const int at = column + i;
      v[i] = at < p.k ? from[p.order ? p.order[at] : at] : 0.0f;
    }
  }

  // Columns column .. column + 3 after the prologue; a norm's common factor is left out.
  __device__ void values(int column, float (&v)[4]) const {
    read(x, column, v);
    if (p.prologue == Prologue::kNone) return;
    float other[4];
    read(p.prologue == Prologue::kRmsNorm ? p.norm_weight : x + p.k, column, other);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      v[i] = p.prologue == Prologue::kRmsNorm ? v[i] * other[i] : gated_activation(p.prologue, v[i], other[i]);
    }
  }
};

inline __device__ uint32_t pack_halves(float a, float b) {
  const __half2 v = __floats2half2_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&v);
}
inline __device__ uint32_t pack_bfloats(float a, float b) {
  const __nv_bfloat162 v = __floats2bfloat162_rn(a, b);
  return *reinterpret_cast<const uint32_t*>(&v);
}

// The power of two that takes a row's largest magnitude to [2^14, 2^15). A row that is not finite stays as it is.
inline __device__ float row_scale(float largest) {
  if (!(largest > 0.0f) || largest > 3.402823466e38f) return 1.0f;
  const int exponent = static_cast<int>(__float_as_uint(largest) >> 23);  // biased
  return __uint_as_float(static_cast<uint32_t>(max(exponent, 30) - 14) << 23);
}

template <StagedType kType>
__global__ void __launch_bounds__(kRowThreads) stage_rows(const StageArgs p) {
  __shared__ float scratch[2][kRowThreads / 32];
  const int row = blockIdx.x, columns = p.slabs * kSlab;
  const StageRow source(p, row);

  float factor = 1.0f;
  const bool norm = p.prologue == Prologue::kRmsNorm;
  if (norm || kType == StagedType::kF16) {
    float squares = 0.0f, largest = 0.0f;
    for (int column = 4 * threadIdx.x; column < p.k; column += 4 * kRowThreads) {
      float v[4];
      if (norm) {
        source.read(source.x, column, v);
#pragma unroll
        for (int i = 0; i < 4; ++i) squares = fmaf(v[i], v[i], squares);
      }
      if constexpr (kType == StagedType::kF16) {
        source.values(column, v);
#pragma unroll
        for (int i = 0; i < 4; ++i) largest = fmaxf(largest, fabsf(v[i]));
      }
    }
    if (norm) factor = 1.0f / sqrtf(reduce_block<Sum>(squares, scratch[0]) / static_cast<float>(p.k) + p.eps);
    if constexpr (kType == StagedType::kF16) {
      largest = reduce_block<Max>(largest, scratch[1]) * factor;
      const float scale = row_scale(largest);
      if (threadIdx.x == 0) p.scale[row] = scale;
      factor /= scale;  // exactly
    }
  }

  const int64_t first = static_cast<int64_t>(row) * columns;
  for (int begin = 0; begin < columns; begin += 4 * kRowThreads) {  // all lanes take part in the sums
    const int column = begin + 4 * threadIdx.x;
    float v[4];
    source.values(column, v);
#pragma unroll
    for (int i = 0; i < 4; ++i) v[i] *= factor;
    if constexpr (kType == StagedType::kF32) {
      if (column < columns)
        *reinterpret_cast<float4*>(static_cast<float*>(p.out) + first + column) = {v[0], v[1], v[2], v[3]};
    } else {
      uint2 packed;
      if constexpr (kType == StagedType::kF16) {
        packed = {pack_halves(v[0], v[1]), pack_halves(v[2], v[3])};
      } else {
        packed = {pack_bfloats(v[0], v[1]), pack_bfloats(v[2], v[3])};
      }
      const int place = p.halves_order ? column / 32 * 32 + halves_order(column % 32) : column;
      if (column < columns) *reinterpret_cast<uint2*>(static_cast<uint16_t*>(p.out) + first + place) = packed;
      if (kType != StagedType::kF16 || !p.sums) continue;
      float sum = 0.0f;
#pragma unroll
      for (const uint32_t two : {packed.x, packed.y}) {
        const float2 pair = __half22float2(*reinterpret_cast<const __half2*>(&two));
        sum += pair.x + pair.y;
      }
#pragma unroll
      for (int lanes = 1; lanes < 4; lanes *= 2) sum += __shfl_xor_sync(0xffffffffu, sum, lanes);
      if (column < columns && threadIdx.x % 4 == 0) p.sums[(first + column) / 16] = sum;
    }
  }
}

}  // namespace octavo::cuda
