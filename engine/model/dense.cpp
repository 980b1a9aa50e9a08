#include "model/dense.h"

#include <cstring>

#include "base/errors.h"
#include "base/format.h"
#include "tensor/half.h"

namespace octavo {

namespace {

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

float load_f32(WeightFormat format, const std::byte* row, int i) {
  switch (format) {
    case WeightFormat::kF32:
      return load<float>(row + 4 * size_t(i));
    case WeightFormat::kF16:
      return f16_to_f32(load<uint16_t>(row + 2 * size_t(i)));
    default:
      return bf16_to_f32(load<uint16_t>(row + 2 * size_t(i)));
  }
}

}  // namespace

std::vector<float> to_f32(const MatrixSource& source) {
  if (weight_format_info(source.format).block != 1) {
    throw Error(ErrorCode::kUnsupported, source.name,
                cat("tensor ", source.name, " has format ", weight_format_info(source.format).name,
                    "; norms and biases must be f32, f16 or bf16"));
  }
  std::vector<float> out;
  out.reserve(static_cast<size_t>(source.n) * source.k);
  for (int r = 0; r < source.n; ++r) {
    const size_t row = source.row_order.empty() ? r : source.row_order[r];
    for (int i = 0; i < source.k; ++i) out.push_back(load_f32(source.format, source.data + row * source.row_bytes, i));
  }
  return out;
}

}  // namespace octavo
