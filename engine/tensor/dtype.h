#pragma once
#include <bit>
#include <cstddef>
#include <cstdint>
#include <string>

namespace octavo {

enum class DType : uint8_t { kF32, kF16, kBF16, kI8, kU8, kI32, kI64, kF8E4M3 };

constexpr size_t dtype_size(DType t) {
  switch (t) {
    case DType::kF32:
    case DType::kI32:
      return 4;
    case DType::kF16:
    case DType::kBF16:
      return 2;
    case DType::kI8:
    case DType::kU8:
    case DType::kF8E4M3:
      return 1;
    case DType::kI64:
      return 8;
  }
  return 0;
}

constexpr const char* dtype_name(DType t) {
  switch (t) {
    case DType::kF32:
      return "float32";
    case DType::kF16:
      return "float16";
    case DType::kBF16:
      return "bfloat16";
    case DType::kI8:
      return "int8";
    case DType::kU8:
      return "uint8";
    case DType::kI32:
      return "int32";
    case DType::kI64:
      return "int64";
    case DType::kF8E4M3:
      return "float8_e4m3";
  }
  return "?";
}

}  // namespace octavo
