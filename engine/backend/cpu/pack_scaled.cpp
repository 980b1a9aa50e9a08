#include "backend/cpu/pack_scaled.h"

#include <cstring>

#include "backend/cpu/scaled_blocks.h"

namespace octavo::cpu {
namespace {

template <class T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
int byte_at(const std::byte* p, int i) { return static_cast<int>(p[i]); }

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

// 128 weights are four planes of 2 bits of 32 bytes.
void read_pairs(const std::byte* from, uint8_t* codes, int shift) {
  for (int half = 0; half < 2; ++half) {
    for (int j = 0; j < 4; ++j) {
      for (int l = 0; l < 32; ++l) {
        codes[128 * half + 32 * j + l] |= (byte_at(from, 32 * half + l) >> (2 * j) & 3) << shift;
      }
    }
  }
}

// Weights `width` apart share a byte.
void read_nibbles(const std::byte* from, int width, int count, uint8_t* codes) {
  for (int begin = 0; begin < count; begin += 2 * width, from += width) {
    for (int l = 0; l < width; ++l) {
      codes[begin + l] = byte_at(from, l) & 15;
      codes[begin + width + l] = byte_at(from, l) >> 4;
    }
  }
}

// Bit `g` of byte l is that of element 32 * g + l.
void read_bits(const std::byte* from, uint8_t* codes, int shift) {
  for (int g = 0; g < 8; ++g) {
    for (int l = 0; l < 32; ++l) codes[32 * g + l] |= (byte_at(from, l) >> g & 1) << shift;
  }
}

// Eight scales and eight minima of 6 bits in 12 bytes.
template <class Block>
void read_scales_and_minima(const std::byte* from, int row, Block& to) {
  for (int g = 0; g < 4; ++g) {
    const int s = byte_at(from, g), m = byte_at(from, g + 4), low = byte_at(from, g + 8);
    to.groups[g].scale[row] = s & 63;
    to.groups[g].min[row] = m & 63;
    to.groups[g + 4].scale[row] = (low & 15) | s >> 6 << 4;
    to.groups[g + 4].min[row] = low >> 4 | m >> 6 << 4;
  }
}

template <class Block>
void put_groups(const uint8_t* codes, int row, Block& to) {
  for (int g = 0; g < Block::kGroups; ++g) put_codes(codes + 32 * g, row, to.groups[g]);
}

void pack_block(const std::byte* from, int row, BlockQ2_K& to) {
  uint8_t codes[256] = {};
  for (int i = 0; i < 16; ++i) to.groups[i / 2].scales[2 * row + i % 2] = byte_at(from, i);
  read_pairs(from + 16, codes, 0);
  to.scale[row] = read<uint16_t>(from + 80);
  to.min[row] = read<uint16_t>(from + 82);
  put_groups(codes, row, to);
}
void pack_block(const std::byte* from, int row, BlockQ3_K& to) {
  uint8_t codes[256] = {};
  read_pairs(from + 32, codes, 0);
  read_bits(from, codes, 2);
  const std::byte* scales = from + 96;
  for (int i = 0; i < 16; ++i) {
    const int low = byte_at(scales, i % 8) >> (i / 8 * 4) & 15, high = byte_at(scales, 8 + i % 4) >> (i / 4 * 2) & 3;
    to.groups[i / 2].scale[2 * row + i % 2] = static_cast<int8_t>((low | high << 4) - 32);
  }
  to.scale[row] = read<uint16_t>(from + 108);
  put_groups(codes, row, to);
}
void pack_block(const std::byte* from, int row, BlockQ4_K& to) {
  uint8_t codes[256];
  to.scale[row] = read<uint16_t>(from);
  to.min[row] = read<uint16_t>(from + 2);
  read_scales_and_minima(from + 4, row, to);
  read_nibbles(from + 16, 32, 256, codes);
  put_groups(codes, row, to);
}
void pack_block(const std::byte* from, int row, BlockQ5_K& to) {
  uint8_t codes[256];
  to.scale[row] = read<uint16_t>(from);
  to.min[row] = read<uint16_t>(from + 2);
  read_scales_and_minima(from + 4, row, to);
  read_nibbles(from + 48, 32, 256, codes);
  read_bits(from + 16, codes, 4);
  put_groups(codes, row, to);
}
void pack_block(const std::byte* from, int row, BlockQ6_K& to) {
  uint8_t codes[256];
  read_nibbles(from, 64, 256, codes);
  read_pairs(from + 128, codes, 4);
  for (int i = 0; i < 16; ++i) to.groups[i / 2].scale[2 * row + i % 2] = read<int8_t>(from + 192 + i);
  to.scale[row] = read<uint16_t>(from + 208);
  put_groups(codes, row, to);
}
void pack_block(const std::byte* from, int row, BlockIQ4_NL& to) {
  uint8_t codes[32];
  to.scale[row] = read<uint16_t>(from);
  read_nibbles(from + 2, 16, 32, codes);
  put_groups(codes, row, to);
}
void pack_block(const std::byte* from, int row, BlockIQ4_XS& to) {
  uint8_t codes[256];
  to.scale[row] = read<uint16_t>(from);
  const int high = read<uint16_t>(from + 2);
  for (int g = 0; g < 8; ++g) {
    const int low = byte_at(from + 4, g / 2) >> (g % 2 * 4) & 15;
    to.groups[g].scale[row] = static_cast<int8_t>((low | (high >> (2 * g) & 3) << 4) - 32);
  }
  read_nibbles(from + 8, 16, 256, codes);
  put_groups(codes, row, to);
}
void pack_block(const std::byte* from, int row, BlockMXFP4& to) {
  uint8_t codes[32];
  to.exponent[row] = byte_at(from, 0);
  read_nibbles(from + 1, 16, 32, codes);
  put_groups(codes, row, to);
}

template <int N>
void pack_block(const std::byte* from, int row, BlockInt4<N>& to) {
  uint8_t codes[32 * N];
  to.scale[row] = read<float>(from);
  to.zero[row] = byte_at(from, 4);
  read_nibbles(from + 5, 16, 32 * N, codes);
  put_groups(codes, row, to);
}

template <class Block>
void pack(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel) {
  auto* blocks = reinterpret_cast<Block*>(panel);
  const auto info = weight_format_info(format);
  for (int b = 0; b < k / info.block; ++b) {
    for (int r = 0; r < count; ++r) pack_block(rows[r] + static_cast<size_t>(b) * info.block_bytes, r, blocks[b]);
  }
}

}  // namespace

void pack_scaled_panel(WeightFormat format, const std::byte* const* rows, int count, int k, std::byte* panel) {
  with_scaled_block(format, [&]<class Block>(Block*) { pack<Block>(format, rows, count, k, panel); });
}

}  // namespace octavo::cpu
