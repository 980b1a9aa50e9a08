#pragma once
#include <bit>
#include <cstdint>

namespace octavo {

// e4m3: 4 bits of exponent (bias 7), 3 of mantissa, no infinities; 0x7f and 0xff are NaN, 448 is the largest value.

inline constexpr float kE4m3Max = 448.0f;
inline constexpr bool is_e4m3_nan(uint8_t v) { return (v & 0x7f) == 0x7f; }

inline float e4m3_to_f32(uint8_t v) {
  const uint32_t sign = static_cast<uint32_t>(v & 0x80) << 24, magnitude = v & 0x7f;
  if (magnitude == 0x7f) return std::bit_cast<float>(sign | 0x7fc00000u);
  if (magnitude < 8) {  // zero and subnormals are exact
    return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(static_cast<float>(magnitude) * 0x1p-9f));
  }
  return std::bit_cast<float>(sign | ((magnitude << 20) + (120u << 23)));
}

}  // namespace octavo
