#pragma once
#include <cstddef>
#include <cstdint>

#include "backend/cpu/scaled_blocks.h"
#include "ops/weight_source.h"

namespace octavo::cpu {

// How packed weights lie in memory. Rows (output features) are cut into panels; a panel holds all of k before the next
// one begins, so a row of tiles reads memory front to back. Rows beyond n are zero. Plain data only: this header is
// also read by files compiled for one instruction set.

inline constexpr int kDenseRows = 16;  // rows of a dense panel: [k][16]

// Codes of 4 bits: chunk c of a group holds k = 4c .. 4c + 3 of 8 rows, byte r * 4 + k % 4. Chunks 2j and 2j + 1 are
// the low and the high nibbles of codes[32 * j ...]. Codes of 5 bits: bit c of high[b] is the fifth bit of byte b of
// chunk c.
struct BlockQ4_0 {  // w = scale * (code - 8)
  uint16_t scale[kGroupRows];
  uint8_t codes[128];
};
struct BlockQ4_1 {  // w = scale * code + min
  uint16_t scale[kGroupRows];
  uint16_t min[kGroupRows];
  uint8_t codes[128];
};
struct BlockQ5_0 {  // w = scale * (code - 16)
  uint16_t scale[kGroupRows];
  uint8_t codes[128];
  uint8_t high[32];
};
struct BlockQ5_1 {  // w = scale * code + min
  uint16_t scale[kGroupRows];
  uint16_t min[kGroupRows];
  uint8_t codes[128];
  uint8_t high[32];
};
// Codes of 8 bits: chunk c holds k = 2c, 2c + 1 of 8 rows, byte r * 2 + k % 2.
struct BlockQ8_0 {  // w = scale * code
  uint16_t scale[kGroupRows];
  int8_t codes[256];
};
// Dense f32 and f16 panels are plain [k][16]. In bf16 panels row r and row r + 8 share a 32-bit word (low, high half),
// so that a shift and a mask widen them.
constexpr int bf16_position(int row) { return row < 8 ? 2 * row : 2 * (row - 8) + 1; }

constexpr bool is_dense(WeightFormat f) {
  return f == WeightFormat::kF32 || f == WeightFormat::kF16 || f == WeightFormat::kBF16;
}

// Calls use(static_cast<Block*>(nullptr)) for a format of scaled_blocks.h; returns whether it is one.
template <class Use>
constexpr bool with_scaled_block(WeightFormat f, Use use) {
  switch (f) {
    case WeightFormat::kQ2_K:
      use(static_cast<BlockQ2_K*>(nullptr));
      return true;
    case WeightFormat::kQ3_K:
      use(static_cast<BlockQ3_K*>(nullptr));
      return true;
    case WeightFormat::kQ4_K:
      use(static_cast<BlockQ4_K*>(nullptr));
      return true;
    case WeightFormat::kQ5_K:
      use(static_cast<BlockQ5_K*>(nullptr));
      return true;
    case WeightFormat::kQ6_K:
      use(static_cast<BlockQ6_K*>(nullptr));
      return true;
    case WeightFormat::kIQ4_NL:
      use(static_cast<BlockIQ4_NL*>(nullptr));
      return true;
    case WeightFormat::kIQ4_XS:
      use(static_cast<BlockIQ4_XS*>(nullptr));
      return true;
    case WeightFormat::kMXFP4:
      use(static_cast<BlockMXFP4*>(nullptr));
      return true;
    case WeightFormat::kInt4x32:
      use(static_cast<BlockInt4<1>*>(nullptr));
      return true;
    case WeightFormat::kInt4x128:
      use(static_cast<BlockInt4<4>*>(nullptr));
      return true;
    default:
      return false;
  }
}
constexpr bool is_f8(WeightFormat f) { return f == WeightFormat::kF8x32 || f == WeightFormat::kF8x128; }
constexpr bool is_int8(WeightFormat f) { return f == WeightFormat::kInt8x32 || f == WeightFormat::kInt8x128; }
constexpr bool reads_f32(WeightFormat f) { return is_dense(f) || is_f8(f); }  // activations as they are
constexpr int panel_rows(WeightFormat f) { return reads_f32(f) ? kDenseRows : kGroupRows; }

constexpr size_t panel_bytes(WeightFormat f, int k) {
  const size_t groups = static_cast<size_t>(k) / kGroup, dense = static_cast<size_t>(k) * kDenseRows;
  switch (f) {
    case WeightFormat::kF32:
      return dense * 4;
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return dense * 2;
    case WeightFormat::kQ4_0:
      return groups * sizeof(BlockQ4_0);
    case WeightFormat::kQ4_1:
      return groups * sizeof(BlockQ4_1);
    case WeightFormat::kQ5_0:
      return groups * sizeof(BlockQ5_0);
    case WeightFormat::kQ5_1:
      return groups * sizeof(BlockQ5_1);
    case WeightFormat::kQ8_0:
      return groups * sizeof(BlockQ8_0);
    case WeightFormat::kInt8x32:
      return groups * sizeof(BlockInt8<1>);
    case WeightFormat::kInt8x128:
      return groups / 4 * sizeof(BlockInt8<4>);
    case WeightFormat::kF8x32:
      return groups * sizeof(BlockF8<32>);
    case WeightFormat::kF8x128:
      return groups / 4 * sizeof(BlockF8<128>);
    default:
      break;
  }
  size_t bytes = 0;
  with_scaled_block(f, [&]<class Block>(Block*) { bytes = groups / Block::kGroups * sizeof(Block); });
  return bytes;
}

}  // namespace octavo::cpu
