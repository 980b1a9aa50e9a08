#include "model/tensor_table.h"

#include "base/errors.h"
#include "base/format.h"
#include "model/ggml_type.h"

namespace octavo {

namespace {

bool has_shape(const std::vector<int64_t>& shape, int n, int k) {
  if (shape.size() == 2) return shape[0] == n && shape[1] == k;
  return shape.size() == 1 && (n == 1 || k == 1) && shape[0] == int64_t{n} * k;
}

[[noreturn]] void refuse_shape(const StoredTensor& t, const std::string& wanted) {
  throw Error(
      ErrorCode::kCorruptFile, t.info.name,
      cat("tensor ", t.info.name, " has shape ", shape_text(t.info.shape), ", the configuration asks for ", wanted));
}

}  // namespace

std::string shape_text(const std::vector<int64_t>& shape) {
  std::string out = "[";
  for (size_t i = 0; i < shape.size(); ++i) out += cat(i ? ", " : "", shape[i]);
  return out + "]";
}

void TensorTable::add(StoredTensor tensor) {
  const std::string name = tensor.info.name;
  if (!tensors_.try_emplace(name, std::move(tensor)).second) {
    throw Error(ErrorCode::kCorruptFile, name, cat("tensor ", name, " occurs twice"));
  }
}

std::vector<std::string> TensorTable::names() const {
  std::vector<std::string> out;
  out.reserve(tensors_.size());
  for (const auto& [name, tensor] : tensors_) out.push_back(name);
  return out;
}

MatrixSource TensorTable::matrix(const std::string& name, int n, int k) const {
  const StoredTensor& t = find(name);
  if (!has_shape(t.info.shape, n, k)) refuse_shape(t, cat("[", n, ", ", k, "]"));
  MatrixSource out = source(t, n, k);
  if (t.file) t.file->prefetch(t.data, t.info.bytes);
  return out;
}

MatrixSource TensorTable::stacked(const std::string& name, int index, int count, int n, int k) const {
  const StoredTensor& t = find(name);
  const std::vector<int64_t>& shape = t.info.shape;
  const bool vectors = k == 1 && shape.size() == 2 && shape[0] == count && shape[1] == n;
  const bool matrices = shape.size() == 3 && shape[0] == count && shape[1] == n && shape[2] == k;
  if (!vectors && !matrices) refuse_shape(t, cat("[", count, ", ", n, ", ", k, "]"));
  MatrixSource out = source(t, n, k);
  const size_t bytes = out.row_bytes * n;
  out.data += bytes * index;
  if (t.file) t.file->prefetch(out.data, bytes);
  return out;
}

const std::byte* TensorTable::bytes(const std::string& name, const std::vector<int64_t>& shape) const {
  const StoredTensor& t = find(name);
  size_t count = 1;
  for (const int64_t size : shape) count *= size;
  if (t.info.shape != shape || t.info.bytes != count) refuse_shape(t, shape_text(shape) + " of single bytes");
  return t.data;
}

MatrixSource TensorTable::source(const StoredTensor& t, int n, int k) const {
  const std::string& name = t.info.name;
  if (!t.format) {
    throw Error(ErrorCode::kUnsupported, name,
                cat("tensor ", name, " has format ", t.info.format, "; supported: ", supported_formats()));
  }
  const WeightFormatInfo format = weight_format_info(*t.format);
  if (k % format.block != 0) {  // also what a quantized vector read as a column would be
    throw Error(ErrorCode::kUnsupported, name,
                cat("tensor ", name, " has rows of ", k, " weights, not a multiple of the ", format.block,
                    " in a block of ", format.name));
  }
  MatrixSource source;
  source.name = name;
  source.format = *t.format;
  source.n = n;
  source.k = k;
  source.data = t.data;
  source.row_bytes = static_cast<size_t>(k / format.block) * format.block_bytes;
  if (t.file) source.release = [file = t.file](const std::byte* data, size_t bytes) { file->release(data, bytes); };
  return source;
}

void TensorTable::release(const std::string& name) {
  const StoredTensor& t = find(name);
  if (t.file) t.file->release(t.data, t.info.bytes);
}

size_t TensorTable::file_bytes() const {
  size_t total = 0;
  for (const auto& [name, tensor] : tensors_) total += tensor.info.bytes;
  return total;
}

const StoredTensor& TensorTable::find(const std::string& name) const {
  const auto it = tensors_.find(name);
  if (it == tensors_.end()) {
    throw Error(ErrorCode::kNotFound, name, cat("the model has no tensor ", name));
  }
  return it->second;
}

}  // namespace octavo
