#pragma once
#include <cstddef>

#include "tensor/dtype.h"
#include "tensor/half.h"

namespace octavo::cpu {

inline float load_kv(DType dtype, const std::byte* data, size_t index) {
  switch (dtype) {
    case DType::kF16:
      return f16_to_f32(reinterpret_cast<const uint16_t*>(data)[index]);
    case DType::kBF16:
      return bf16_to_f32(reinterpret_cast<const uint16_t*>(data)[index]);
    default:
      return reinterpret_cast<const float*>(data)[index];
  }
}

inline void store_kv(DType dtype, std::byte* data, size_t index, float value) {
  switch (dtype) {
    case DType::kF16:
      reinterpret_cast<uint16_t*>(data)[index] = f32_to_f16(value);
      break;
    case DType::kBF16:
      reinterpret_cast<uint16_t*>(data)[index] = f32_to_bf16(value);
      break;
    default:
      reinterpret_cast<float*>(data)[index] = value;
  }
}

}  // namespace octavo::cpu
