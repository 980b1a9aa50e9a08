#pragma once
#include "backend/cpu/weight_layout.h"

namespace octavo::cpu {

// pack_panel and unpack_row (see packed.h) for the formats of scaled_blocks.h.
void pack_scaled_panel(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel);
void unpack_scaled_row(WeightFormat format, const std::byte* panel, int row, int k, float* out);

}  // namespace octavo::cpu
