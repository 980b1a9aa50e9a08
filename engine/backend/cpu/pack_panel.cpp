#include <algorithm>
#include <cstring>

#include "backend/cpu/pack_scaled.h"
#include "backend/cpu/packed.h"

namespace octavo::cpu {
namespace {

template <class T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}

void write_word(uint8_t* bytes, int index, uint32_t word) { std::memcpy(bytes + 4 * index, &word, 4); }

// A GGUF block holds elements j and j + 16 in one byte: `qs` is 4 words, chunk c of 4 elements is the low nibbles of
// word c, or the high ones of word c - 4.
uint32_t nibble_chunk(const std::byte* qs, int c) {
  return (read<uint32_t>(qs + 4 * (c % 4)) >> (c < 4 ? 0 : 4)) & 0x0f0f0f0fu;
}

void pack_nibbles(const std::byte* qs, int row, uint8_t* codes) {
  for (int j = 0; j < 4; ++j) {
    write_word(codes + 32 * j, row, nibble_chunk(qs, 2 * j) | nibble_chunk(qs, 2 * j + 1) << 4);
  }
}

// Bit 4c + i of a GGUF block's `qh` becomes bit c of byte i.
void pack_fifth_bits(uint32_t qh, int row, uint8_t* high) {
  uint32_t word = 0;
  for (int c = 0; c < 8; ++c) {
    const uint32_t bits = qh >> (4 * c) & 15;
    word |= ((bits * 0x00204081u) & 0x01010101u) << c;
  }
  write_word(high, row, word);
}

void pack_block(const std::byte* from, int row, BlockQ4_0& to) {
  to.scale[row] = read<uint16_t>(from);
  pack_nibbles(from + 2, row, to.codes);
}
void pack_block(const std::byte* from, int row, BlockQ4_1& to) {
  to.scale[row] = read<uint16_t>(from);
  to.min[row] = read<uint16_t>(from + 2);
  pack_nibbles(from + 4, row, to.codes);
}
void pack_block(const std::byte* from, int row, BlockQ5_0& to) {
  to.scale[row] = read<uint16_t>(from);
  pack_fifth_bits(read<uint32_t>(from + 2), row, to.high);
  pack_nibbles(from + 6, row, to.codes);
}
void pack_block(const std::byte* from, int row, BlockQ5_1& to) {
  to.scale[row] = read<uint16_t>(from);
  to.min[row] = read<uint16_t>(from + 2);
  pack_fifth_bits(read<uint32_t>(from + 4), row, to.high);
  pack_nibbles(from + 8, row, to.codes);
}
void pack_block(const std::byte* from, int row, BlockQ8_0& to) {
  to.scale[row] = read<uint16_t>(from);
  for (int c = 0; c < 16; ++c) std::memcpy(to.codes + 16 * c + 2 * row, from + 2 + 2 * c, 2);
}

template <int N>
void pack_block(const std::byte* from, int row, BlockInt8<N>& to) {
  to.scale[row] = read<float>(from);
  for (int c = 0; c < 16 * N; ++c) std::memcpy(to.groups[c / 16].codes + 16 * (c % 16) + 2 * row, from + 4 + 2 * c, 2);
}

template <class Block>
void pack_groups(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel) {
  auto* blocks = reinterpret_cast<Block*>(panel);
  const auto info = weight_format_info(format);
  for (int b = 0; b < k / info.block; ++b) {
    for (int r = 0; r < count; ++r) pack_block(rows[r] + static_cast<size_t>(b) * info.block_bytes, r, blocks[b]);
  }
}

template <int N>
void pack_f8(const std::byte* const* rows, int count, int k, std::byte* panel) {
  auto* blocks = reinterpret_cast<BlockF8<N>*>(panel);
  for (int b = 0; b < k / N; ++b) {
    for (int r = 0; r < count; ++r) {
      const std::byte* from = rows[r] + static_cast<size_t>(b) * (4 + N);
      blocks[b].scale[r] = read<float>(from);
      for (int i = 0; i < N; ++i) blocks[b].codes[i][r] = static_cast<uint8_t>(from[4 + i]);
    }
  }
}

template <class T, class Position>
void pack_dense(const std::byte* const* rows, int count, int k, std::byte* panel, Position position) {
  auto* to = reinterpret_cast<T*>(panel);
  constexpr int kBlock = 256;  // a slice of the panel stays in L1 while the rows pass
  for (int begin = 0; begin < k; begin += kBlock) {
    const int end = std::min(begin + kBlock, k);
    for (int r = 0; r < count; ++r) {
      T* column = to + position(r);
      for (int i = begin; i < end; ++i) column[static_cast<size_t>(i) * kDenseRows] = read<T>(rows[r] + i * sizeof(T));
    }
  }
}

}  // namespace

void pack_panel(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel) {
  const auto same = [](int r) { return r; };
  switch (format) {
    case WeightFormat::kF32:
      return pack_dense<uint32_t>(rows, count, k, panel, same);
    case WeightFormat::kF16:
      return pack_dense<uint16_t>(rows, count, k, panel, same);
    case WeightFormat::kBF16:
      return pack_dense<uint16_t>(rows, count, k, panel, bf16_position);
    case WeightFormat::kQ4_0:
      return pack_groups<BlockQ4_0>(format, rows, count, k, panel);
    case WeightFormat::kQ4_1:
      return pack_groups<BlockQ4_1>(format, rows, count, k, panel);
    case WeightFormat::kQ5_0:
      return pack_groups<BlockQ5_0>(format, rows, count, k, panel);
    case WeightFormat::kQ5_1:
      return pack_groups<BlockQ5_1>(format, rows, count, k, panel);
    case WeightFormat::kQ8_0:
      return pack_groups<BlockQ8_0>(format, rows, count, k, panel);
    case WeightFormat::kInt8x32:
      return pack_groups<BlockInt8<1>>(format, rows, count, k, panel);
    case WeightFormat::kInt8x128:
      return pack_groups<BlockInt8<4>>(format, rows, count, k, panel);
    case WeightFormat::kF8x32:
      return pack_f8<32>(rows, count, k, panel);
    case WeightFormat::kF8x128:
      return pack_f8<128>(rows, count, k, panel);
    default:
      return pack_scaled_panel(format, rows, count, k, panel);
  }
}

}  // namespace octavo::cpu
