#include "backend/cpu/packed.h"

#include <algorithm>

#include "backend/cpu/linear.h"
#include "base/errors.h"
#include "base/format.h"
#include "ops/check_source.h"

namespace octavo::cpu {
namespace {

const std::byte* source_row(const MatrixSource& part, int row) {
  const int from = part.row_order.empty() ? row : part.row_order[row];
  return part.data + static_cast<size_t>(from) * part.row_bytes;
}

// The rows of a section in its parts.
class RowSource {
 public:
  explicit RowSource(WeightFormat format) : format_(format) {}
  void add(const MatrixSource& part) {
    ends_.push_back((ends_.empty() ? 0 : ends_.back()) + part.n);
    parts_.push_back(&part);
  }
  WeightFormat format() const { return format_; }
  const std::byte* row(int r) const {
    const size_t i = part_of(r);
    return source_row(*parts_[i], i == 0 ? r : r - ends_[i - 1]);
  }
  // Rows [first, last) have been read.
  void release(int first, int last) const {
    for (int r = first; r < last;) {
      const size_t i = part_of(r);
      const MatrixSource& part = *parts_[i];
      const int end = std::min(ends_[i], last);
      const std::byte *low = row(r), *high = low;
      for (; r < end; ++r) {
        low = std::min(low, row(r));
        high = std::max(high, row(r));
      }
      if (part.release) part.release(low, high - low + part.row_bytes);
    }
  }

 private:
  size_t part_of(int r) const { return std::upper_bound(ends_.begin(), ends_.end(), r) - ends_.begin(); }

  WeightFormat format_;
  std::vector<int> ends_;
  std::vector<const MatrixSource*> parts_;
};

constexpr size_t kSectionAlign = 64;
constexpr size_t kSliceBytes = size_t{32} << 20;  // of a file: read, packed and given back before the next ones come

// Packs a section slice by slice.
void pack_section(CpuQueue& queue, const PackKernels& kernels, const CpuPackedWeight& packed, size_t index,
                  const RowSource& source) {
  const auto& section = packed.sections()[index];
  const int height = panel_rows(section.format), k = packed.k();
  const auto dense = is_dense(section.format) ? kernels.dense[static_cast<int>(section.format)] : nullptr;
  const auto quantize = kernels.quantize(source.format(), section.format);
  const auto info = weight_format_info(section.format), from = weight_format_info(source.format());
  const size_t row_bytes = static_cast<size_t>(k / info.block) * info.block_bytes;
  std::vector<std::byte> quantized(quantize ? row_bytes * height * queue.pool().threads() : 0);
  const size_t file_row = static_cast<size_t>(k / from.block) * from.block_bytes;
  const int panels = (section.rows + height - 1) / height;
  const int slice = static_cast<int>(std::max<size_t>(kSliceBytes / (file_row * height), 4 * queue.pool().threads()));
  for (int begin = 0; begin < panels; begin += slice) {
    const int end = std::min(begin + slice, panels);
    queue.pool().run(end - begin, [&](int p, int worker) {
      const std::byte* rows[kDenseRows];
      const int first = (begin + p) * height, count = std::min(height, section.rows - first);
      std::byte* to = quantized.data() + row_bytes * height * worker;
      for (int r = 0; r < count; ++r) {
        rows[r] = source.row(first + r);
        if (!quantize) continue;
        quantize(rows[r], k, to + r * row_bytes);
        rows[r] = to + r * row_bytes;
      }
      std::byte* panel = packed.panel(section, first);
      if (dense && count == height) return dense(rows, k, panel);
      pack_panel(section.format, rows, count, k, panel);
    });
    source.release(begin * height, std::min(end * height, section.rows));
  }
}

}  // namespace

CpuPackedWeight::CpuPackedWeight(int n, int k, std::vector<Section> sections, std::shared_ptr<std::byte> memory,
                                 size_t bytes, std::vector<int32_t> input_order)
    : PackedWeight(n, k),
      sections_(std::move(sections)),
      memory_(std::move(memory)),
      bytes_(bytes),
      input_order_(std::move(input_order)) {}

std::string CpuPackedWeight::format() const {
  std::string name;
  for (const Section& s : sections_) {
    if (!name.empty()) name += '+';
    name += weight_format_info(s.format).name;
  }
  return name;
}

void CpuPackedWeight::dequantize_row(int row, float* out) const {
  if (row < 0 || row >= n_) throw Error(ErrorCode::kInvalidArgument, "row", cat("row ", row, " of ", n_));
  for (const Section& s : sections_) {
    if (row >= s.first_row + s.rows) continue;
    const int r = row - s.first_row;
    const std::byte* from = panel(s, r);
    if (input_order_.empty()) return unpack_row(s.format, from, r % panel_rows(s.format), k_, out);
    std::vector<float> packed(input_order_.size());
    unpack_row(s.format, from, r % panel_rows(s.format), columns(), packed.data());
    std::fill_n(out, k_, 0.0f);
    for (size_t i = 0; i < packed.size(); ++i) out[input_order_[i]] += packed[i];
    return;
  }
}

std::optional<DensePanels> CpuPackedWeight::dense_panels(int first_row, int rows) const {
  for (const Section& s : sections_) {
    const int first = first_row - s.first_row;
    if (first < 0 || rows < 1 || rows > s.rows - first) continue;
    const int height = panel_rows(s.format);
    if (!is_dense(s.format) || first % height != 0 || !input_order_.empty()) return std::nullopt;
    DensePanels out;
    out.dtype = s.format == WeightFormat::kF32   ? DType::kF32
                : s.format == WeightFormat::kF16 ? DType::kF16
                                                 : DType::kBF16;
    out.data = panel(s, first);
    out.panels = (rows + height - 1) / height;
    out.half_rows = height / 2;
    const bool paired = s.format == WeightFormat::kBF16;  // see bf16_position
    out.half_stride = paired ? 1 : out.half_rows;
    out.row_stride = paired ? 2 : 1;
    out.panel_bytes = s.panel_bytes;
    return out;
  }
  return std::nullopt;
}

std::unique_ptr<PackedWeight> pack(CpuQueue& queue, const PackKernels& kernels, HugePages& memory,
                                   const std::vector<MatrixSource>& parts) {
  if (parts.empty()) throw Error(ErrorCode::kInvalidArgument, "parts", "there is nothing to pack");
  const int k = parts[0].k;
  std::vector<CpuPackedWeight::Section> sections;
  std::vector<RowSource> sources;
  int n = 0;
  for (const MatrixSource& part : parts) {
    check_source(part, k);
    if (part.input_order != parts[0].input_order) {
      throw Error(ErrorCode::kUnsupported, part.name,
                  cat(part.name, ": its columns lie in another order than those of ", parts[0].name,
                      ", with which it is multiplied in one"));
    }
    const WeightFormat format = part.pack_as.value_or(part.format);
    if (sections.empty() || sections.back().format != format || sources.back().format() != part.format) {
      sections.push_back({format, n, 0, 0, panel_bytes(format, k)});
      sources.emplace_back(part.format);
    }
    sections.back().rows += part.n;
    sources.back().add(part);
    n += part.n;
  }
  size_t bytes = 0;
  for (auto& s : sections) {
    s.offset = bytes;
    const size_t panels = (s.rows + panel_rows(s.format) - 1) / panel_rows(s.format);
    bytes += (panels * s.panel_bytes + kSectionAlign - 1) / kSectionAlign * kSectionAlign;
  }
  auto packed =
      std::make_unique<CpuPackedWeight>(n, k, std::move(sections), memory.take(bytes), bytes, parts[0].input_order);
  for (size_t i = 0; i < sources.size(); ++i) pack_section(queue, kernels, *packed, i, sources[i]);
  return packed;
}

}  // namespace octavo::cpu
