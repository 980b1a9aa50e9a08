#include "model/fused_experts.h"

#include <cstring>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

constexpr int kBlock = 32;
constexpr int kPacked = kBlock / 2;  // bytes of a block's codes

std::string blocks_of(const std::string& name) { return name + "_blocks"; }
std::string scales_of(const std::string& name) { return name + "_scales"; }

MatrixSource transposed(const WeightFiles& files, const std::string& name, const ExpertRows& r,
                        std::vector<std::byte>& storage) {
  const int all_rows = r.n * r.step;
  MatrixSource source = files.stacked(name, r.index, r.count, r.k, all_rows);
  const WeightFormatInfo format = weight_format_info(source.format);
  if (format.block != 1) {
    throw Error(ErrorCode::kUnsupported, name,
                cat("tensor ", name, " has format ", format.name, "; experts in this layout must be dense or MXFP4"));
  }
  const size_t item = format.block_bytes;
  storage.resize(static_cast<size_t>(r.n) * r.k * item);
  for (int i = 0; i < r.k; ++i) {
    const std::byte* column = source.data + i * source.row_bytes;
    for (int row = 0; row < r.n; ++row) {
      const std::byte* from = column + (r.first + static_cast<size_t>(r.step) * row) * item;
      std::memcpy(storage.data() + (static_cast<size_t>(row) * r.k + i) * item, from, item);
    }
  }
  source.n = r.n;
  source.k = r.k;
  source.row_bytes = r.k * item;
  return source;
}

// A byte of the file holds neighbouring codes; one of GGUF's blocks code j beside code j + 16, after the scale.
MatrixSource mxfp4(const WeightFiles& files, const std::string& name, const ExpertRows& r,
                   std::vector<std::byte>& storage) {
  const int all_rows = r.n * r.step, groups = r.k / kBlock;
  if (r.k % kBlock != 0) {
    throw Error(ErrorCode::kUnsupported, name,
                cat("tensor ", name, " has rows of ", r.k, " weights, not of blocks of ", kBlock));
  }
  const std::byte* codes = files.bytes(blocks_of(name), {r.count, all_rows, groups, kPacked});
  const std::byte* scales = files.bytes(scales_of(name), {r.count, all_rows, groups});
  MatrixSource source;
  source.name = name;
  source.format = WeightFormat::kMXFP4;
  source.n = r.n;
  source.k = r.k;
  source.row_bytes = static_cast<size_t>(groups) * (1 + kPacked);
  storage.resize(source.row_bytes * r.n);
  std::byte* to = storage.data();
  for (int row = 0; row < r.n; ++row) {
    const size_t at = (static_cast<size_t>(r.index) * all_rows + r.first + static_cast<size_t>(r.step) * row) * groups;
    for (int g = 0; g < groups; ++g, to += 1 + kPacked) {
      const std::byte* from = codes + (at + g) * kPacked;
      const auto code = [from](int i) { return i % 2 == 0 ? from[i / 2] & std::byte{15} : from[i / 2] >> 4; };
      to[0] = scales[at + g];
      for (int j = 0; j < kPacked; ++j) to[1 + j] = code(j) | code(j + kPacked) << 4;
    }
  }
  return source;
}

}  // namespace

bool has_fused_experts(const WeightFiles& files, const std::string& name) {
  return files.has(name) || files.has(blocks_of(name));
}

std::vector<std::string> fused_expert_tensors(const WeightFiles& files, const std::string& name) {
  if (files.has(blocks_of(name))) return {blocks_of(name), scales_of(name)};
  return {name};
}

MatrixSource fused_expert(const WeightFiles& files, const std::string& name, const ExpertRows& rows,
                          std::vector<std::byte>& storage) {
  MatrixSource source =
      files.has(blocks_of(name)) ? mxfp4(files, name, rows, storage) : transposed(files, name, rows, storage);
  source.data = storage.data();
  if (rows.k % kBlock != 0) source.pack_as.reset();
  source.release = nullptr;
  return source;
}

}  // namespace octavo
