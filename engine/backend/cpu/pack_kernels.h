#pragma once
#include <cstddef>

#include "ops/quantize_row.h"

namespace octavo {

// Sixteen dense rows to a panel (see weight_layout.h).
using PackDense = void (*)(const std::byte* const* rows, int k, std::byte* panel);

struct PackKernels {
  QuantizeRow q8_0[3];  // from f32, f16, bf16
  QuantizeRow q4_1[3];
  PackDense dense[3];  // f32, f16, bf16; null: by the plain loops of pack_panel()

  // Null: the row stays as it is.
  QuantizeRow quantize(WeightFormat from, WeightFormat to) const {
    if (from == to) return nullptr;
    return (to == WeightFormat::kQ8_0 ? q8_0 : q4_1)[static_cast<int>(from)];
  }
};

extern const PackKernels kPackBaseline, kPackAvx2;

}  // namespace octavo
