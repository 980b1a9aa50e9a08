#include "backend/cpu/pack_scaled.h"
#include "backend/cpu/scaled_codes.h"

namespace octavo::cpu {
namespace {

// Each product and difference rounded once, as the formats' definitions have it.
template <class Block>
void unpack(const std::byte* panel, int row, int k, float* out) {
  const auto* blocks = reinterpret_cast<const Block*>(panel);
  for (int b = 0; b < k / (32 * Block::kGroups); ++b) {
    for (const auto& group : blocks[b].groups) {
      for (int i = 0; i < 32; ++i) {
        const float scale = block_scale(blocks[b], row) * static_cast<float>(group_scale(group, row, i / 16));
        float value = scale * static_cast<float>(code_value(blocks[b], row, group_code(group, row, i)));
        if constexpr (kHasMin<Block>) {
          value -= f16_to_f32(blocks[b].min[row]) * static_cast<float>(group_min(group, row, i / 16));
        }
        *out++ = value;
      }
    }
  }
}

}  // namespace

void unpack_scaled_row(WeightFormat format, const std::byte* panel, int row, int k, float* out) {
  with_scaled_block(format, [&]<class Block>(Block*) { unpack<Block>(panel, row, k, out); });
}

}  // namespace octavo::cpu
