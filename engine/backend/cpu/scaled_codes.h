#pragma once
#include <bit>
#include <type_traits>

#include "backend/cpu/scaled_blocks.h"
#include "tensor/half.h"

// Reading single weights of scaled_blocks.h. Not for files compiled for one instruction set (see kernels.h).
namespace octavo::cpu {

// The code of element k of a group of row r.
template <class Group>
int group_code(const Group& g, int r, int k) {
  const int c = k / 4, byte = r * 4 + k % 4;
  int code = 0;
  if constexpr (requires { g.pairs; }) {
    code = g.pairs[32 * (c / 4) + byte] >> (2 * (c % 4)) & 3;
    if constexpr (requires { g.high; }) code |= (g.high[byte] >> c & 1) << 2;
  } else {
    code = g.codes[32 * (c / 2) + byte] >> (4 * (c % 2)) & 15;
    if constexpr (requires { g.high; }) code |= (g.high[byte] >> c & 1) << 4;
    if constexpr (requires { g.high_pairs; }) code |= (g.high_pairs[32 * (c / 4) + byte] >> (2 * (c % 4)) & 3) << 4;
  }
  return code;
}

// The integer that a code of row r stands for.
template <class Block>
int code_value(const Block& w, int r, int code) {
  if constexpr (requires { Block::kValues; }) return Block::kValues[code];
  if constexpr (requires { Block::kOffset; }) return code - Block::kOffset;
  if constexpr (requires { w.zero; }) return code - w.zero[r];
  return code;
}

template <class Block>
float block_scale(const Block& w, int r) {
  if constexpr (requires { w.exponent; }) {
    const uint32_t e = w.exponent[r];
    return std::bit_cast<float>(e < 2 ? 0x00200000u << e : (e - 1) << 23);
  } else if constexpr (std::is_same_v<decltype(w.scale), float[kGroupRows]>) {
    return w.scale[r];
  } else {
    return f16_to_f32(w.scale[r]);
  }
}

// The small integers of half h of a group.
template <class Group>
int group_scale(const Group& g, int r, int h) {
  if constexpr (requires { g.scales; }) return g.scales[2 * r + h] & 15;
  if constexpr (requires { g.scale; }) return sizeof(g.scale) == 16 ? g.scale[2 * r + h] : g.scale[r];
  return 1;
}
template <class Block>
constexpr bool kHasMin = requires(Block w) { w.min; };
template <class Group>
int group_min(const Group& g, int r, int h) {
  if constexpr (requires { g.scales; }) return g.scales[2 * r + h] >> 4;
  if constexpr (requires { g.min; }) return g.min[r];
  return 0;
}

}  // namespace octavo::cpu
