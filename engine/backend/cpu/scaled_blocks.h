#pragma once
#include <cstddef>
#include <cstdint>

namespace octavo::cpu {

// Blocks of one or more groups of 32 weights of 8 rows. The rows' float scales stand once in a block; what differs from
// group to group or from half to half of a group are small integers, as in the file:
//   w = scale * s * (code - offset)           or, where there are minima,
//   w = scale * s * code - min * m
// Codes lie in planes of bits. A plane of 4 bits is that of BlockQ4_0; in one of 2 bits chunk c (k = 4c .. 4c + 3 of 8
// rows, byte r * 4 + k % 4) is bits 2 * (c % 4) of bytes [32 * (c / 4) ...]; in one of 1 bit it is bit c.
// Plain data only, as in weight_layout.h.

inline constexpr int kGroup = 32;     // weights that share a scale
inline constexpr int kGroupRows = 8;  // rows of a quantized panel: [k / kGroup] groups

template <class Block>
constexpr int groups_of_block() {
  if constexpr (requires { Block::kGroups; }) return Block::kGroups;
  return 1;
}

struct GroupQ2_K {
  uint8_t scales[16];  // of half h of row r at 2 * r + h: s in the low nibble, m in the high one
  uint8_t pairs[64];
};
struct GroupQ3_K {
  int8_t scale[16];  // of half h of row r at 2 * r + h
  uint8_t pairs[64];
  uint8_t high[32];
};
struct GroupQ4_K {
  uint8_t scale[8];
  uint8_t min[8];
  uint8_t codes[128];
};
struct GroupQ5_K {
  uint8_t scale[8];
  uint8_t min[8];
  uint8_t codes[128];
  uint8_t high[32];
};
struct GroupQ6_K {
  int8_t scale[16];  // of half h of row r at 2 * r + h
  uint8_t codes[128];
  uint8_t high_pairs[64];
};
struct GroupIQ4_XS {
  int8_t scale[8];
  uint8_t codes[128];
};
struct GroupCodes {  // nothing but codes
  uint8_t codes[128];
};

template <class G, int N>
struct BlockScaled {
  using Group = G;
  static constexpr int kGroups = N;
  uint16_t scale[kGroupRows];  // f16
  G groups[N];
};
template <class G, int N>
struct BlockScaledMin {
  using Group = G;
  static constexpr int kGroups = N;
  uint16_t scale[kGroupRows];  // f16
  uint16_t min[kGroupRows];    // f16
  G groups[N];
};

struct BlockQ2_K : BlockScaledMin<GroupQ2_K, 8> {};
struct BlockQ3_K : BlockScaled<GroupQ3_K, 8> {
  static constexpr int kOffset = 4;
};
struct BlockQ4_K : BlockScaledMin<GroupQ4_K, 8> {};
struct BlockQ5_K : BlockScaledMin<GroupQ5_K, 8> {};
struct BlockQ6_K : BlockScaled<GroupQ6_K, 8> {
  static constexpr int kOffset = 32;
};

// Codes that stand for the values of a table.
inline constexpr int8_t kIq4Values[16] = {-127, -104, -83, -65, -49, -35, -22, -10, 1, 13, 25, 38, 53, 69, 89, 113};
inline constexpr int8_t kMxfp4Values[16] = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

struct BlockIQ4_NL : BlockScaled<GroupCodes, 1> {
  static constexpr const int8_t* kValues = kIq4Values;
};
struct BlockIQ4_XS : BlockScaled<GroupIQ4_XS, 8> {
  static constexpr const int8_t* kValues = kIq4Values;
};
struct BlockMXFP4 {
  using Group = GroupCodes;
  static constexpr int kGroups = 1;
  static constexpr const int8_t* kValues = kMxfp4Values;
  uint8_t exponent[kGroupRows];  // scale = 2^(exponent - 128): the table's values are doubled
  GroupCodes groups[1];
};

// Blocks with a float scale and, of 4-bit codes, a zero point for each row: w = scale * (code - zero).
template <int N>
struct BlockInt4 {
  using Group = GroupCodes;
  static constexpr int kGroups = N;
  float scale[kGroupRows];
  uint8_t zero[kGroupRows];
  GroupCodes groups[N];
};
// Codes of 8 bits: chunk c of a group holds k = 2c, 2c + 1 of 8 rows, byte r * 2 + k % 2.
struct GroupBytes {
  int8_t codes[256];
};
template <int N>
struct BlockInt8 {
  using Group = GroupBytes;
  static constexpr int kGroups = N;
  float scale[kGroupRows];
  GroupBytes groups[N];
};
// e4m3 values of 16 rows, times a scale for each row: a dense panel in blocks of k.
template <int N>
struct BlockF8 {
  static constexpr int kWidth = N;
  float scale[16];
  uint8_t codes[N][16];
};

}  // namespace octavo::cpu
