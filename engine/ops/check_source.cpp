#include "ops/check_source.h"

#include <vector>

#include "base/errors.h"
#include "base/format.h"
#include "ops/quantize_row.h"

namespace octavo {

void check_source(const MatrixSource& part, int k) {
  const auto info = weight_format_info(part.format);
  auto fail = [&](const std::string& what) {
    throw Error(ErrorCode::kInvalidArgument, part.name, cat(part.name, ": ", what));
  };
  if (part.n <= 0 || part.k <= 0) fail(cat("has no elements: [", part.n, ", ", part.k, "]"));
  if (part.k != k) fail(cat("has ", part.k, " columns, the matrices packed with it have ", k));
  if (part.k % info.block != 0) {
    fail(cat("has ", part.k, " columns; ", info.name, " needs a multiple of ", info.block));
  }
  const size_t row_bytes = static_cast<size_t>(part.k / info.block) * info.block_bytes;
  if (part.pack_as) {
    if (info.block > 1 || !quantizes_to(*part.pack_as)) {
      fail(cat("is ", info.name, " and cannot be quantized to ", weight_format_info(*part.pack_as).name));
    }
    if (part.k % kQuantizedGroup != 0)
      fail(cat("has ", part.k, " columns; to quantize it a multiple of ", kQuantizedGroup, " is needed"));
  }
  if (!part.data) fail("has no data");
  if (part.row_bytes < row_bytes) fail(cat("has rows of ", part.row_bytes, " bytes, ", row_bytes, " are needed"));
  if (!part.row_order.empty() && part.row_order.size() != static_cast<size_t>(part.n)) {
    fail(cat("has a row order of ", part.row_order.size(), " entries for ", part.n, " rows"));
  }
  for (int32_t row : part.row_order) {
    if (row < 0 || row >= part.n) fail(cat("has row ", row, " in its row order, the limit is ", part.n));
  }
  if (part.input_order.empty()) return;
  std::vector<bool> seen(part.k);
  if (part.input_order.size() != seen.size()) {
    fail(cat("has an input order of ", part.input_order.size(), " entries for ", part.k, " columns"));
  }
  for (int32_t column : part.input_order) {
    if (column < 0 || column >= part.k || seen[column]) fail(cat("has column ", column, " wrong in its input order"));
    seen[column] = true;
  }
}

}  // namespace octavo
