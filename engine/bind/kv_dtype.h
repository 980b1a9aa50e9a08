#pragma once
#include <string>

#include "base/errors.h"
#include "base/format.h"
#include "tensor/dtype.h"

namespace octavo {

// The element type of a cache, by the name that tests and studies give.
inline DType kv_dtype_from_name(const std::string& name) {
  if (name == "f32") return DType::kF32;
  if (name == "f16") return DType::kF16;
  if (name == "bf16") return DType::kBF16;
  if (name == "int8") return DType::kI8;
  if (name == "fp8") return DType::kF8E4M3;
  throw Error(ErrorCode::kInvalidArgument, "kv_dtype", cat("kv_dtype must be f32, f16, bf16, fp8 or int8, got ", name));
}

}  // namespace octavo
