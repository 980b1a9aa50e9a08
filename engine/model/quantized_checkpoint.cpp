#include <cstring>
#include <numeric>

#include "base/errors.h"
#include "base/format.h"
#include "model/open_weights.h"
#include "model/rewrite_blocks.h"
#include "tensor/float8.h"
#include "tensor/half.h"

namespace octavo {

namespace {

// The tensors that make one matrix: the codes, and what stands beside them under the same stem.
struct Names {
  const char* codes;
  const char* scale;
  const char* zero;
  const char* group_index;
};
constexpr Names kGptq{".qweight", ".scales", ".qzeros", ".g_idx"};
constexpr Names kPacked{".weight_packed", ".weight_scale", ".weight_zero_point", ".weight_g_idx"};
constexpr Names kPlain{".weight", ".weight_scale", ".weight_zero_point", ""};
constexpr Names kInverse{".weight", ".weight_scale_inv", "", ""};
// Of activations, which are quantized here as they come; of shapes, which the configuration gives.
constexpr const char* kIgnored[] = {".input_scale", ".activation_scale", ".weight_shape"};

// Nibble i of a word holds the column kAwqOrder[i] of its eight.
constexpr int kAwqOrder[8] = {0, 2, 4, 6, 1, 3, 5, 7};

[[noreturn]] void corrupt(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kCorruptFile, name, cat("tensor ", name, " ", what));
}
[[noreturn]] void unsupported(const std::string& name, const std::string& what) {
  throw Error(ErrorCode::kUnsupported, name, cat("tensor ", name, " ", what));
}

// A tensor as a matrix; a scalar or vector has one column.
struct Grid {
  const StoredTensor* tensor;
  int64_t rows, columns;

  explicit Grid(const StoredTensor& t) : tensor(&t), rows(1), columns(1) {
    const auto& shape = t.info.shape;
    if (shape.size() > 2) unsupported(t.info.name, cat("has shape ", shape_text(shape), ", not that of a matrix"));
    if (!shape.empty()) rows = shape[0];
    if (shape.size() == 2) columns = shape[1];
  }
  template <class T>
  T at(int64_t row, int64_t column) const {
    T value;
    std::memcpy(&value, tensor->data + (row * columns + column) * sizeof(T), sizeof(T));
    return value;
  }
  float number(int64_t row, int64_t column) const {
    if (!tensor->format) unsupported(tensor->info.name, cat("has dtype ", tensor->info.format, ", not a float's"));
    if (*tensor->format == WeightFormat::kF32) return at<float>(row, column);
    const auto bits = at<uint16_t>(row, column);
    return *tensor->format == WeightFormat::kF16 ? f16_to_f32(bits) : bf16_to_f32(bits);
  }
  void expect(int64_t r, int64_t c) const {
    if (rows == r && columns == c) return;
    corrupt(tensor->info.name, cat("has shape ", shape_text(tensor->info.shape), ", [", r, ", ", c, "] is needed"));
  }
  void expect_type(std::string_view type) const {
    if (tensor->info.format != type) {
      unsupported(tensor->info.name, cat("has dtype ", tensor->info.format, ", not ", type));
    }
  }
};

class QuantizedCheckpoint final : public WeightFiles {
 public:
  QuantizedCheckpoint(std::unique_ptr<TensorTable> table, const CheckpointQuantization& quantization)
      : table_(std::move(table)), q_(quantization) {
    for (const std::string& name : table_->names()) {
      if (const Names* kind = kind_of(name)) matrices_[stem(name, kind->codes) + ".weight"] = kind;
    }
    for (const std::string& name : table_->names()) {
      if (!belongs_to_matrix(name)) names_.push_back(name);
    }
    for (const auto& [name, kind] : matrices_) {
      if (std::strcmp(kind->codes, ".weight") != 0) names_.push_back(name);
    }
  }

  std::vector<std::string> names() const override { return names_; }
  bool has(const std::string& name) const override {
    return matrices_.contains(name) || (table_->has(name) && !belongs_to_matrix(name));
  }
  WeightInfo info(const std::string& name) const override {
    const auto found = matrices_.find(name);
    if (found == matrices_.end()) return table_->info(name);
    const std::string at = stem(name, ".weight");
    WeightInfo info = table_->info(at + found->second->codes);
    info.name = name;
    info.format = cat(q_.method, " ", info.format == "F8_E4M3" ? "e4m3" : cat("int", code_bits(at, *found->second)));
    const auto [n, k] = shape(at, *found->second);
    info.shape = {n, k};
    for (const char* suffix : {found->second->scale, found->second->zero, found->second->group_index}) {
      if (*suffix && table_->has(at + suffix)) info.bytes += table_->info(at + suffix).bytes;
    }
    return info;
  }

  MatrixSource matrix(const std::string& name, int n, int k) const override {
    const auto found = matrices_.find(name);
    if (found == matrices_.end()) return table_->matrix(name, n, k);
    const std::string at = stem(name, ".weight");
    const auto [rows, columns] = shape(at, *found->second);
    if (rows != n || columns != k) {
      corrupt(name, cat("has shape [", rows, ", ", columns, "], the configuration asks for [", n, ", ", k, "]"));
    }
    CodedMatrix coded;
    coded.n = n;
    coded.k = k;
    const CodeKind kind = describe(at, *found->second, coded);
    MatrixSource source;
    source.name = name;
    source.format = block_format(name, kind, coded.group, k);
    source.n = n;
    source.k = k;
    source.input_order = coded.order;
    const WeightFormatInfo format = weight_format_info(source.format);
    source.row_bytes = static_cast<size_t>(k / format.block) * format.block_bytes;
    std::vector<std::byte>& rewritten = rewritten_[name];
    rewritten = rewrite_blocks(coded, source.format);
    source.data = rewritten.data();
    for_each_tensor(at, *found->second, [&](const std::string& t) { table_->release(t); });
    return source;
  }

  MatrixSource stacked(const std::string& name, int index, int count, int n, int k) const override {
    return table_->stacked(name, index, count, n, k);
  }
  const std::byte* bytes(const std::string& name, const std::vector<int64_t>& shape) const override {
    return table_->bytes(name, shape);
  }

  void release(const std::string& name) override {
    if (!matrices_.contains(name)) return table_->release(name);
    rewritten_.erase(name);
  }
  size_t file_bytes() const override { return table_->file_bytes(); }

 private:
  static std::string stem(const std::string& name, std::string_view suffix) {
    return name.substr(0, name.size() - suffix.size());
  }

  // The kind of matrix whose codes this tensor holds.
  const Names* kind_of(const std::string& name) const {
    if (q_.method == "gptq" || q_.method == "awq") return name.ends_with(kGptq.codes) ? &kGptq : nullptr;
    if (name.ends_with(kPacked.codes)) return &kPacked;
    if (!name.ends_with(".weight")) return nullptr;
    if (table_->has(stem(name, ".weight") + kInverse.scale)) return &kInverse;
    return table_->has(stem(name, ".weight") + kPlain.scale) ? &kPlain : nullptr;
  }

  bool belongs_to_matrix(const std::string& name) const {
    for (const Names* kind : {&kGptq, &kPacked, &kPlain, &kInverse}) {
      for (const char* suffix : {kind->codes, kind->scale, kind->zero, kind->group_index}) {
        if (!*suffix || !name.ends_with(suffix) || std::strcmp(suffix, ".weight") == 0) continue;
        const auto found = matrices_.find(stem(name, suffix) + ".weight");
        if (found != matrices_.end()) return true;
      }
    }
    for (const char* suffix : kIgnored) {
      if (name.ends_with(suffix) && matrices_.contains(stem(name, suffix) + ".weight")) return true;
    }
    return false;
  }

  template <class Use>
  void for_each_tensor(const std::string& at, const Names& kind, Use use) const {
    for (const char* suffix : {kind.codes, kind.scale, kind.zero, kind.group_index}) {
      if (*suffix && table_->has(at + suffix)) use(at + suffix);
    }
  }

  int code_bits(const std::string& at, const Names& kind) const {
    return table_->info(at + kind.codes).format == "I32" ? q_.bits : 8;
  }

  std::pair<int64_t, int64_t> shape(const std::string& at, const Names& kind) const {
    const Grid codes(table_->find(at + kind.codes));
    if (&kind == &kPlain || &kind == &kInverse) return {codes.rows, codes.columns};
    const int64_t packed = 32 / q_.bits;
    if (&kind == &kPacked) return {codes.rows, codes.columns * packed};
    return q_.method == "awq" ? std::pair{codes.columns * packed, codes.rows}
                              : std::pair{codes.columns, codes.rows * packed};
  }

  // How to read the matrix's codes, scales and zero points.
  CodeKind describe(const std::string& at, const Names& kind, CodedMatrix& m) const {
    const Grid codes(table_->find(at + kind.codes)), scales(table_->find(at + kind.scale));
    if (&kind == &kInverse || (&kind == &kPlain && table_->info(at + kind.codes).format == "F8_E4M3")) {
      return describe_f8(codes, scales, m);
    }
    if (&kind == &kPlain) {
      codes.expect_type("I8");
      m.codes = [codes, k = m.k](int row, uint8_t* out) { std::memcpy(out, codes.tensor->data + int64_t{k} * row, k); };
      describe_scales(scales, m);
      check_no_zeros(at, kind);
      return CodeKind::kInt8;
    }
    codes.expect_type("I32");
    describe_packed(at, kind, codes, scales, m);
    if (q_.bits == 4) return CodeKind::kInt4;
    // Codes of 8 bits about their middle are signed ones.
    for (int row = 0; row < m.n; ++row) {
      for (int g = 0; g < m.k / m.group; ++g) {
        if (m.zero(row, g) != 128) {
          unsupported(at + kind.zero, cat("has a zero point of ", m.zero(row, g), "; 8-bit codes need 128"));
        }
      }
    }
    m.codes = [inner = m.codes, k = m.k](int row, uint8_t* out) {
      inner(row, out);
      for (int i = 0; i < k; ++i) out[i] ^= 128;
    };
    return CodeKind::kInt8;
  }

  // [n, groups], [n, 1] or one for all.
  void describe_scales(const Grid& scales, CodedMatrix& m) const {
    const bool one = scales.rows * scales.columns == 1;
    if (!one) {
      if (scales.columns < 1 || m.k % scales.columns != 0) scales.expect(m.n, 1);
      scales.expect(m.n, scales.columns);
    }
    m.group = static_cast<int>(m.k / scales.columns);
    m.scale = [scales, one](int row, int g) { return one ? scales.number(0, 0) : scales.number(row, g); };
  }

  CodeKind describe_f8(const Grid& codes, const Grid& scales, CodedMatrix& m) const {
    codes.expect_type("F8_E4M3");
    m.codes = [codes, k = m.k](int row, uint8_t* out) {
      std::memcpy(out, codes.tensor->data + int64_t{k} * row, k);
      for (int i = 0; i < k; ++i) {
        if (is_e4m3_nan(out[i])) corrupt(codes.tensor->info.name, cat("has a NaN at [", row, ", ", i, "]"));
      }
    };
    if (q_.block_rows == 0) {
      describe_scales(scales, m);
      return CodeKind::kF8;
    }
    scales.expect((m.n + q_.block_rows - 1) / q_.block_rows, (m.k + q_.block_columns - 1) / q_.block_columns);
    m.group = q_.block_columns;
    m.scale = [scales, rows = q_.block_rows](int row, int g) { return scales.number(row / rows, g); };
    return CodeKind::kF8;
  }

  void check_no_zeros(const std::string& at, const Names& kind) const {
    const std::string name = at + kind.zero;
    if (!table_->has(name)) return;
    const StoredTensor& t = table_->find(name);
    for (size_t i = 0; i < t.info.bytes; ++i) {
      if (t.data[i] != std::byte{0}) unsupported(name, "has zero points other than 0; 8-bit codes must be symmetric");
    }
  }

  void describe_packed(const std::string& at, const Names& kind, const Grid& codes, const Grid& scales,
                       CodedMatrix& m) const {
    const int bits = q_.bits, packed = 32 / bits, mask = (1 << bits) - 1;
    const bool has_zeros = table_->has(at + kind.zero);
    if (&kind == &kPacked) {
      describe_scales(scales, m);
      m.codes = [=, k = m.k](int row, uint8_t* out) {
        for (int i = 0; i < k; ++i) out[i] = codes.at<uint32_t>(row, i / packed) >> (i % packed * bits) & mask;
      };
      m.zero = [=](int, int) { return 1 << (bits - 1); };
      if (has_zeros) {
        const Grid zeros(table_->find(at + kind.zero));
        zeros.expect_type("I32");
        zeros.expect((m.n + packed - 1) / packed, m.k / m.group);
        m.zero = [=](int row, int g) { return zeros.at<uint32_t>(row / packed, g) >> (row % packed * bits) & mask; };
      }
    } else {
      if (scales.rows < 1 || m.k % scales.rows != 0) corrupt(at + kind.scale, "has rows that do not divide the width");
      scales.expect(scales.rows, m.n);
      m.group = static_cast<int>(m.k / scales.rows);
      m.scale = [scales](int row, int g) { return scales.number(g, row); };
      if (!has_zeros) corrupt(at + kind.zero, "is missing");
      const Grid zeros(table_->find(at + kind.zero));
      zeros.expect_type("I32");
      zeros.expect(scales.rows, (m.n + packed - 1) / packed);
      const bool awq = q_.method == "awq";
      if (awq && bits != 4) unsupported(at + kind.codes, cat("has codes of ", bits, " bits; awq has 4"));
      int place[8];  // of a column among those of its word
      for (int i = 0; i < 8; ++i) place[awq ? kAwqOrder[i] : i] = i;
      const auto in_word = [=](const Grid& grid, int64_t r, int column) {
        return static_cast<int>(grid.at<uint32_t>(r, column / packed) >> (place[column % packed] * bits) & mask);
      };
      const int add = q_.zero_less_one ? 1 : 0;
      m.zero = [=](int row, int g) { return in_word(zeros, g, row) + add; };
      if (awq) {
        m.codes = [=, k = m.k](int row, uint8_t* out) {
          for (int i = 0; i < k; ++i) out[i] = in_word(codes, i, row);
        };
      } else {
        m.codes = [=, k = m.k](int row, uint8_t* out) {
          for (int i = 0; i < k; ++i) out[i] = codes.at<uint32_t>(i / packed, row) >> (i % packed * bits) & mask;
        };
      }
    }
    if (*kind.group_index && table_->has(at + kind.group_index)) sort_by_group(at + kind.group_index, m);
  }

  // Columns that were quantized in another order than they lie: group_index[column] is the group.
  void sort_by_group(const std::string& name, CodedMatrix& m) const {
    const Grid index(table_->find(name));
    index.expect_type("I32");
    index.expect(m.k, 1);
    std::vector<std::vector<int32_t>> groups(m.k / m.group);
    bool sorted = true;
    for (int i = 0; i < m.k; ++i) {
      const auto g = index.at<int32_t>(i, 0);
      if (g < 0 || g >= static_cast<int>(groups.size())) corrupt(name, cat("has group ", g, " of ", groups.size()));
      sorted &= g == i / m.group;
      groups[g].push_back(i);
    }
    if (sorted) return;
    for (const auto& group : groups) {
      if (static_cast<int>(group.size()) != m.group) {
        unsupported(name, cat("has a group of ", group.size(), " columns among those of ", m.group));
      }
      m.order.insert(m.order.end(), group.begin(), group.end());
    }
  }

  std::unique_ptr<TensorTable> table_;
  CheckpointQuantization q_;
  std::map<std::string, const Names*> matrices_;  // by the name they have here
  std::vector<std::string> names_;
  mutable std::map<std::string, std::vector<std::byte>> rewritten_;  // until they are released
};

}  // namespace

std::unique_ptr<WeightFiles> open_quantized_weights(std::unique_ptr<TensorTable> table,
                                                    const CheckpointQuantization& quantization) {
  if (quantization.bits != 4 && quantization.bits != 8) {
    throw Error(ErrorCode::kUnsupported, "quantization_config.bits",
                cat("quantization_config.bits is ", quantization.bits, "; 4 and 8 can be read"));
  }
  if (quantization.block_rows < 0 || quantization.block_columns < (quantization.block_rows > 0 ? 1 : 0)) {
    throw Error(ErrorCode::kUnsupported, "quantization_config.weight_block_size",
                cat("blocks of ", quantization.block_rows, " x ", quantization.block_columns, " weights"));
  }
  return std::make_unique<QuantizedCheckpoint>(std::move(table), quantization);
}

}  // namespace octavo
