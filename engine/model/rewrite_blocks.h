#pragma once
#include <cstdint>
#include <functional>
#include <vector>

#include "ops/weight_source.h"

namespace octavo {

// A quantized matrix as any checkpoint describes it: codes and scales by row and column. `group` columns of a row share
// a scale; order[j] is the column that comes j-th when columns are sorted by group (empty: as they are).
struct CodedMatrix {
  int n = 0;
  int k = 0;
  int group = 0;
  std::vector<int32_t> order;
  std::function<void(int row, uint8_t* codes)> codes;  // [k], in the order of the file
  std::function<float(int row, int group)> scale;
  std::function<int(int row, int group)> zero;  // kInt4 only
};

enum class CodeKind { kInt4, kInt8, kF8 };

// The format of the blocks that hold it: the wide ones where groups allow. Error(kUnsupported, name, ...) for groups of
// no multiple of 32.
WeightFormat block_format(const std::string& name, CodeKind kind, int group, int k);

// Its rows as blocks of `format`.
std::vector<std::byte> rewrite_blocks(const CodedMatrix& matrix, WeightFormat format);

}  // namespace octavo
