#include "backend/cpu/pack_scaled.h"

#include <cstring>
#include <type_traits>

#include "backend/cpu/weight_layout.h"
#include "ops/file_block.h"

namespace octavo::cpu {
namespace {

void or_word(uint8_t* bytes, int row, uint32_t word) {
  uint32_t old;
  std::memcpy(&old, bytes + 4 * row, 4);
  word |= old;
  std::memcpy(bytes + 4 * row, &word, 4);
}

// The codes of a row of a group, one in a byte, into the planes of an empty one.
template <class Group>
void put_codes(const uint8_t* codes, int row, Group& g) {
  for (int c = 0; c < 8; ++c) {
    uint32_t word;
    std::memcpy(&word, codes + 4 * c, 4);
    constexpr bool narrow = requires { g.pairs; };
    if constexpr (narrow) {
      or_word(g.pairs + 32 * (c / 4), row, (word & 0x03030303u) << (2 * (c % 4)));
    } else {
      or_word(g.codes + 32 * (c / 2), row, (word & 0x0f0f0f0fu) << (4 * (c % 2)));
    }
    if constexpr (requires { g.high; }) or_word(g.high, row, (word >> (narrow ? 2 : 4) & 0x01010101u) << c);
    if constexpr (requires { g.high_pairs; }) {
      or_word(g.high_pairs + 32 * (c / 4), row, (word >> 4 & 0x03030303u) << (2 * (c % 4)));
    }
  }
}

template <class Block>
void put_groups(const uint8_t* codes, int row, Block& to) {
  for (int g = 0; g < Block::kGroups; ++g) put_codes(codes + 32 * g, row, to.groups[g]);
}

// The numbers of a row of a block that stand beside its codes.
template <class Block>
void put_scales(const FileBlock& from, int row, Block& to) {
  if constexpr (requires { to.exponent; }) {
    to.exponent[row] = from.exponent;
  } else if constexpr (requires { to.zero; }) {
    to.scale[row] = from.wide_scale;
    to.zero[row] = from.zero;
  } else {
    to.scale[row] = from.scale;
    if constexpr (requires { to.min; }) to.min[row] = from.min;
  }
  for (int g = 0; g < Block::kGroups; ++g) {
    auto& group = to.groups[g];
    if constexpr (requires { group.scales; }) {
      for (int h = 0; h < 2; ++h) {
        group.scales[2 * row + h] = static_cast<uint8_t>(from.scales[2 * g + h] | from.mins[2 * g + h] << 4);
      }
    } else if constexpr (requires { group.scale; }) {
      using Scale = std::remove_reference_t<decltype(group.scale[0])>;
      constexpr int kHalves = sizeof(group.scale) / kGroupRows;
      for (int h = 0; h < kHalves; ++h) {
        group.scale[kHalves * row + h] = static_cast<Scale>(from.scales[kHalves * g + h]);
      }
      if constexpr (requires { group.min; }) group.min[row] = from.mins[g];
    }
  }
}

template <class Block>
void pack(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel) {
  auto* blocks = reinterpret_cast<Block*>(panel);
  const auto info = weight_format_info(format);
  for (int b = 0; b < k / info.block; ++b) {
    for (int r = 0; r < count; ++r) {
      FileBlock from;
      read_file_block(format, rows[r] + static_cast<size_t>(b) * info.block_bytes, from);
      put_scales(from, r, blocks[b]);
      put_groups(from.codes, r, blocks[b]);
    }
  }
}

}  // namespace

void pack_scaled_panel(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel) {
  with_scaled_block(format, [&]<class Block>(Block*) { pack<Block>(format, rows, count, k, panel); });
}

}  // namespace octavo::cpu
