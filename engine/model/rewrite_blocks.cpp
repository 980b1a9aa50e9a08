#include "model/rewrite_blocks.h"

#include <cstring>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

constexpr int kNarrow = 32, kWide = 128;

}  // namespace

WeightFormat block_format(const std::string& name, CodeKind kind, int group, int k) {
  if (group <= 0 || group % kNarrow != 0 || k % kNarrow != 0) {
    throw Error(ErrorCode::kUnsupported, name,
                cat("tensor ", name, " has rows of ", k, " weights with a scale for every ", group,
                    "; both must be multiples of ", kNarrow));
  }
  const bool wide = group % kWide == 0 && k % kWide == 0;
  switch (kind) {
    case CodeKind::kInt4:
      return wide ? WeightFormat::kInt4x128 : WeightFormat::kInt4x32;
    case CodeKind::kInt8:
      return wide ? WeightFormat::kInt8x128 : WeightFormat::kInt8x32;
    case CodeKind::kF8:
      return wide ? WeightFormat::kF8x128 : WeightFormat::kF8x32;
  }
  return WeightFormat::kF32;
}

std::vector<std::byte> rewrite_blocks(const CodedMatrix& matrix, WeightFormat format) {
  const WeightFormatInfo info = weight_format_info(format);
  const bool nibbles = format == WeightFormat::kInt4x32 || format == WeightFormat::kInt4x128;
  std::vector<std::byte> out(static_cast<size_t>(matrix.n) * (matrix.k / info.block) * info.block_bytes);
  std::vector<uint8_t> file(matrix.k), codes(matrix.k);
  std::byte* to = out.data();
  for (int row = 0; row < matrix.n; ++row) {
    matrix.codes(row, file.data());
    if (matrix.order.empty()) {
      codes = file;
    } else {
      for (int i = 0; i < matrix.k; ++i) codes[i] = file[matrix.order[i]];
    }
    for (int begin = 0; begin < matrix.k; begin += info.block) {
      const int group = begin / matrix.group;
      const float scale = matrix.scale(row, group);
      std::memcpy(to, &scale, sizeof scale);
      to += sizeof scale;
      if (!nibbles) {
        std::memcpy(to, codes.data() + begin, info.block);
        to += info.block;
        continue;
      }
      *to++ = static_cast<std::byte>(matrix.zero(row, group));
      for (int g = begin; g < begin + info.block; g += kNarrow) {
        for (int i = g; i < g + kNarrow / 2; ++i)
          *to++ = static_cast<std::byte>(codes[i] | codes[i + kNarrow / 2] << 4);
      }
    }
  }
  return out;
}

}  // namespace octavo
