#pragma once
#include "backend/cuda/kernels/slab_scales.cuh"

// Rows of a matrix as f32, exactly what its format defines: each product and sum rounded once.
namespace octavo::cuda {

inline constexpr int kDequantizeThreads = 128;

struct DequantizeArgs {
  const std::byte* codes = nullptr;
  const std::byte* scales = nullptr;
  const int32_t* ids =
      nullptr;  // [gridDim.x] rows of the whole matrix, of which this part has [first_row, first_row + n)
  int first_row = 0;
  int n = 0;
  int k = 0;
  int slabs = 0;
  const int32_t* order = nullptr;  // [k] which column of the result a column of the matrix is; null: the same
  float scale = 1.0f;
  float* out = nullptr;  // [gridDim.x, k]
};

inline __device__ void store_column(const DequantizeArgs& p, float* out, int column, float value) {
  if (column >= p.k) return;
  if (p.scale != 1.0f) value *= p.scale;
  out[p.order ? p.order[column] : column] = value;
}

// A thread has one lane's 16 columns of a slab at a time.
template <WeightFormat kFormat>
__global__ void __launch_bounds__(kDequantizeThreads) dequantize_rows(const DequantizeArgs p) {
  const int row = p.ids[blockIdx.x] - p.first_row;
  if (row < 0 || row >= p.n) return;
  float* out = p.out + static_cast<int64_t>(blockIdx.x) * p.k;
  using Codes = SlabCodes<kFormat>;
  using Scales = SlabScales<kFormat>;
  const int tile = row / kTileRows, high = row % kTileRows / 8;
  const int records = (p.slabs + Scales::kRecord.slabs - 1) / Scales::kRecord.slabs;
  for (int part = threadIdx.x; part < 4 * p.slabs; part += kDequantizeThreads) {
    const int slab = part / 4, t = part % 4, lane = row % 8 * 4 + t;
    Codes codes;
    Scales scales;
    codes.load(p.codes + (static_cast<size_t>(tile) * p.slabs + slab) * Codes::kBytes, lane);
    scales.load(p.scales + static_cast<size_t>(tile) * records * Scales::kRecord.bytes, slab, lane);
#pragma unroll
    for (int pair = 0; pair < 2; ++pair) {
      PairScales<Scales::kHalves> s;
      uint32_t a[2][4];
      scales.pair(pair, s);
      codes.fragments(pair, s.zero, a);
#pragma unroll
      for (int step = 0; step < 2; ++step) {
        const int half = Scales::kHalves ? step : 0;
        const int column = slab * kSlab + 32 * pair + (Scales::kHalves ? 16 * step + 4 * t : 8 * t + 4 * step);
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          const uint32_t two = high ? a[step][i / 2 * 2 + 1] : a[step][i / 2 * 2];
          float value = (high ? s.scale[half][1] : s.scale[half][0]) * (i % 2 ? high_half(two) : low_half(two));
          if constexpr (has_min(Scales::kKind)) value += high ? s.min[half][1] : s.min[half][0];
          store_column(p, out, column + i, value);
        }
      }
    }
  }
}

template <WeightFormat kFormat>
__device__ float dense_element(const std::byte* row, int column) {
  if constexpr (kFormat == WeightFormat::kF32) {
    return reinterpret_cast<const float*>(row)[column];
  } else if constexpr (kFormat == WeightFormat::kF16) {
    return __half2float(reinterpret_cast<const __half*>(row)[column]);
  } else {
    return __bfloat162float(reinterpret_cast<const __nv_bfloat16*>(row)[column]);
  }
}

template <WeightFormat kFormat>
__global__ void __launch_bounds__(kDequantizeThreads) widen_rows(const DequantizeArgs p) {
  const int row = p.ids[blockIdx.x] - p.first_row;
  if (row < 0 || row >= p.n) return;
  float* out = p.out + static_cast<int64_t>(blockIdx.x) * p.k;
  const std::byte* from =
      p.codes + static_cast<size_t>(row) * p.slabs * kSlab * weight_format_info(kFormat).block_bytes;
  for (int column = threadIdx.x; column < p.k; column += kDequantizeThreads) {
    store_column(p, out, column, dense_element<kFormat>(from, column));
  }
}

}  // namespace octavo::cuda
