#pragma once
#include <cstddef>

#include "ops/weight_source.h"

namespace octavo {

constexpr bool quantizes_to(WeightFormat f) { return f == WeightFormat::kQ8_0 || f == WeightFormat::kQ4_1; }

inline constexpr int kQuantizedGroup = 32;  // weights that share a scale

// A row of dense weights to GGUF blocks, by the formulas of the gguf package. k is a multiple of kQuantizedGroup.
using QuantizeRow = void (*)(const std::byte* row, int k, std::byte* blocks);

// From kF32, kF16 or kBF16 to kQ8_0 or kQ4_1, in plain loops.
template <WeightFormat kFrom, WeightFormat kTo>
void quantize_row(const std::byte* row, int k, std::byte* blocks);
QuantizeRow plain_quantizer(WeightFormat from, WeightFormat to);

}  // namespace octavo
