#pragma once
#include <map>
#include <memory>
#include <optional>

#include "model/mapped_file.h"
#include "model/weights.h"

namespace octavo {

// A tensor of a checkpoint and who keeps its bytes alive.
struct StoredTensor {
  WeightInfo info;
  std::optional<WeightFormat> format;  // empty: known, but not readable
  const std::byte* data = nullptr;
  std::shared_ptr<MappedFile> file;   // null: the caller's memory
  std::shared_ptr<const void> owner;  // keeps other memory alive until the table's end
};

// The one implementation of WeightFiles: openers fill it from their kind of file.
class TensorTable final : public WeightFiles {
 public:
  void add(StoredTensor tensor);  // Error(kCorruptFile, name, ...) when the name is taken

  std::vector<std::string> names() const override;
  bool has(const std::string& name) const override { return tensors_.contains(name); }
  WeightInfo info(const std::string& name) const override { return find(name).info; }
  MatrixSource matrix(const std::string& name, int n, int k) const override;
  MatrixSource stacked(const std::string& name, int index, int count, int n, int k) const override;
  const std::byte* bytes(const std::string& name, const std::vector<int64_t>& shape) const override;
  void release(const std::string& name) override;
  size_t file_bytes() const override;
  const StoredTensor& find(const std::string& name) const;  // Error(kNotFound, name, ...)

 private:
  MatrixSource source(const StoredTensor& tensor, int n, int k) const;

  std::map<std::string, StoredTensor> tensors_;
};

std::string shape_text(const std::vector<int64_t>& shape);  // "[576, 1536]"

}  // namespace octavo
