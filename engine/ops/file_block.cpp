#include "ops/file_block.h"

#include <cstring>

namespace octavo {
namespace {

template <class T>
T read(const std::byte* p) {
  T value;
  std::memcpy(&value, p, sizeof value);
  return value;
}
int byte_at(const std::byte* p, int i) { return static_cast<int>(p[i]); }

// Weights `width` apart share a byte.
void read_nibbles(const std::byte* from, int width, int count, uint8_t* codes) {
  for (int begin = 0; begin < count; begin += 2 * width, from += width) {
    for (int l = 0; l < width; ++l) {
      codes[begin + l] = byte_at(from, l) & 15;
      codes[begin + width + l] = byte_at(from, l) >> 4;
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

// Bit `g` of byte l is that of element 32 * g + l.
void read_bits(const std::byte* from, uint8_t* codes, int shift) {
  for (int g = 0; g < 8; ++g) {
    for (int l = 0; l < 32; ++l) codes[32 * g + l] |= (byte_at(from, l) >> g & 1) << shift;
  }
}

// Bit i is the fifth of element i.
void read_fifth_bits(const std::byte* from, uint8_t* codes) {
  const auto bits = read<uint32_t>(from);
  for (int i = 0; i < 32; ++i) codes[i] |= (bits >> i & 1) << 4;
}

// Eight scales and eight minima of 6 bits in 12 bytes.
void read_scales_and_minima(const std::byte* from, FileBlock& to) {
  for (int g = 0; g < 4; ++g) {
    const int s = byte_at(from, g), m = byte_at(from, g + 4), low = byte_at(from, g + 8);
    to.scales[g] = static_cast<int16_t>(s & 63);
    to.mins[g] = static_cast<uint8_t>(m & 63);
    to.scales[g + 4] = static_cast<int16_t>((low & 15) | s >> 6 << 4);
    to.mins[g + 4] = static_cast<uint8_t>(low >> 4 | m >> 6 << 4);
  }
}

void read_q2_k(const std::byte* from, FileBlock& to) {
  std::memset(to.codes, 0, sizeof to.codes);
  for (int i = 0; i < 16; ++i) {
    to.scales[i] = static_cast<int16_t>(byte_at(from, i) & 15);
    to.mins[i] = static_cast<uint8_t>(byte_at(from, i) >> 4);
  }
  read_pairs(from + 16, to.codes, 0);
  to.scale = read<uint16_t>(from + 80);
  to.min = read<uint16_t>(from + 82);
}

void read_q3_k(const std::byte* from, FileBlock& to) {
  std::memset(to.codes, 0, sizeof to.codes);
  read_pairs(from + 32, to.codes, 0);
  read_bits(from, to.codes, 2);
  const std::byte* scales = from + 96;
  for (int i = 0; i < 16; ++i) {
    const int low = byte_at(scales, i % 8) >> (i / 8 * 4) & 15, high = byte_at(scales, 8 + i % 4) >> (i / 4 * 2) & 3;
    to.scales[i] = static_cast<int16_t>((low | high << 4) - 32);
  }
  to.scale = read<uint16_t>(from + 108);
}

// kQ4_K and kQ5_K, whose fifth bits come first.
void read_k_with_minima(const std::byte* from, bool fifth, FileBlock& to) {
  to.scale = read<uint16_t>(from);
  to.min = read<uint16_t>(from + 2);
  read_scales_and_minima(from + 4, to);
  read_nibbles(from + (fifth ? 48 : 16), 32, 256, to.codes);
  if (fifth) read_bits(from + 16, to.codes, 4);
}

void read_q6_k(const std::byte* from, FileBlock& to) {
  read_nibbles(from, 64, 256, to.codes);
  read_pairs(from + 128, to.codes, 4);
  for (int i = 0; i < 16; ++i) to.scales[i] = read<int8_t>(from + 192 + i);
  to.scale = read<uint16_t>(from + 208);
}

void read_iq4_xs(const std::byte* from, FileBlock& to) {
  to.scale = read<uint16_t>(from);
  const int high = read<uint16_t>(from + 2);
  for (int g = 0; g < 8; ++g) {
    const int low = byte_at(from + 4, g / 2) >> (g % 2 * 4) & 15;
    to.scales[g] = static_cast<int16_t>((low | (high >> (2 * g) & 3) << 4) - 32);
  }
  read_nibbles(from + 8, 16, 256, to.codes);
}

// Blocks of 32: f16 scale, f16 min, fifth bits, nibbles, of which a format may lack some.
void read_small(const std::byte* from, bool min, bool fifth, FileBlock& to) {
  to.scale = read<uint16_t>(from);
  from += 2;
  if (min) {
    to.min = read<uint16_t>(from);
    from += 2;
  }
  read_nibbles(from + (fifth ? 4 : 0), 16, 32, to.codes);
  if (fifth) read_fifth_bits(from, to.codes);
}

}  // namespace

void read_file_block(WeightFormat format, const std::byte* from, FileBlock& to) {
  switch (format) {
    case WeightFormat::kQ4_0:
    case WeightFormat::kIQ4_NL:
      return read_small(from, false, false, to);
    case WeightFormat::kQ4_1:
      return read_small(from, true, false, to);
    case WeightFormat::kQ5_0:
      return read_small(from, false, true, to);
    case WeightFormat::kQ5_1:
      return read_small(from, true, true, to);
    case WeightFormat::kQ8_0:
      to.scale = read<uint16_t>(from);
      std::memcpy(to.codes, from + 2, 32);
      return;
    case WeightFormat::kQ2_K:
      return read_q2_k(from, to);
    case WeightFormat::kQ3_K:
      return read_q3_k(from, to);
    case WeightFormat::kQ4_K:
      return read_k_with_minima(from, false, to);
    case WeightFormat::kQ5_K:
      return read_k_with_minima(from, true, to);
    case WeightFormat::kQ6_K:
      return read_q6_k(from, to);
    case WeightFormat::kIQ4_XS:
      return read_iq4_xs(from, to);
    case WeightFormat::kMXFP4:
      to.exponent = static_cast<uint8_t>(from[0]);
      return read_nibbles(from + 1, 16, 32, to.codes);
    case WeightFormat::kInt4x32:
    case WeightFormat::kInt4x128:
      to.wide_scale = read<float>(from);
      to.zero = static_cast<uint8_t>(from[4]);
      return read_nibbles(from + 5, 16, weight_format_info(format).block, to.codes);
    case WeightFormat::kInt8x32:
    case WeightFormat::kInt8x128:
    case WeightFormat::kF8x32:
    case WeightFormat::kF8x128:
      to.wide_scale = read<float>(from);
      std::memcpy(to.codes, from + 4, weight_format_info(format).block);
      return;
    case WeightFormat::kF32:
    case WeightFormat::kF16:
    case WeightFormat::kBF16:
      return;
  }
}

}  // namespace octavo
