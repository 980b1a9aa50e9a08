#pragma once
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace octavo {

// The place of a cache type in the tables of kernels: f32, f16, bf16, then int8 and e4m3 with scales.
constexpr int kv_type_index(DType dtype) {
  return dtype == DType::kI8 ? 3 : dtype == DType::kF8E4M3 ? 4 : static_cast<int>(dtype);
}

// One head of one token on its way into the cache.
struct KvKernels {
  // x[i], x[half + i] rotated by the angle whose cosine is cos_sin[i] and sine cos_sin[half + i], half = rotary_dim
  // / 2.
  void (*rotate)(float* x, const float* cos_sin, int rotary_dim);
  // Converted (nearest, ties to even) and stored `stride` elements apart. One function per cache type: f32, f16, bf16.
  void (*store[3])(const float* x, int dim, std::byte* out, size_t stride);
  // The same for int8 and e4m3; x is that of one head. A value that is not finite makes the scale so.
  void (*store_scaled[2])(const float* x, int dim, std::byte* out, size_t stride, float* scale);
};

extern const KvKernels kKvKernelsBaseline;
extern const KvKernels kKvKernelsAvx2;

}  // namespace octavo
