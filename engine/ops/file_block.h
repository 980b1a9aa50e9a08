#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/weight_source.h"

namespace octavo {

// One block of a quantized format, taken apart: what backends pack their own layouts from.
//   w = scale * s * (code - offset of the format or zero), or scale * s * code + min, less min * m
// with small integers s and m where the format has them.
struct FileBlock {
  // In the order of the columns: unsigned, places in a table, of kQ8_0 and kInt8 signed bytes, of kF8 e4m3 values.
  uint8_t codes[256];
  uint16_t scale;      // f16: of every format but the following
  uint16_t min;        // f16: kQ4_1, kQ5_1, kQ2_K, kQ4_K, kQ5_K
  uint8_t exponent;    // kMXFP4: the scale is 2^(exponent - 127)
  float wide_scale;    // kInt4, kInt8, kF8
  uint8_t zero;        // kInt4
  int16_t scales[16];  // s of groups of 32 (kQ4_K, kQ5_K, kIQ4_XS) or 16 (kQ2_K, kQ3_K, kQ6_K)
  uint8_t mins[16];    // m of those groups: kQ2_K, kQ4_K, kQ5_K
};

// from: weight_format_info(format).block_bytes of a quantized format
void read_file_block(WeightFormat format, const std::byte* from, FileBlock& to);

}  // namespace octavo
