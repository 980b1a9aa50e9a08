#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "model/ggml_type.h"
#include "model/mapped_file.h"

namespace octavo {

struct GgufArray;

// A metadata value. Strings are views into the mapped file and need not be valid UTF-8.
using GgufValue = std::variant<bool, uint64_t, int64_t, double, std::string_view, std::shared_ptr<const GgufArray>>;

enum class GgufValueType : uint32_t {
  kU8,
  kI8,
  kU16,
  kI16,
  kU32,
  kI32,
  kF32,
  kBool,
  kString,
  kArray,
  kU64,
  kI64,
  kF64
};

struct GgufArray {
  GgufValueType type = GgufValueType::kU8;
  size_t size = 0;
  const std::byte* scalars = nullptr;                    // in the file, unaligned; neither strings nor arrays
  std::vector<std::string_view> strings;                 // kString
  std::vector<std::shared_ptr<const GgufArray>> arrays;  // kArray

  GgufValue at(size_t index) const;  // index < size
};

struct GgufTensor {
  std::string name;
  std::vector<int64_t> shape;  // outermost first (the file has it the other way round)
  const GgmlType* type = nullptr;
  const std::byte* data = nullptr;
  size_t bytes = 0;
};

// A GGUF file (versions 2 and 3, little endian): header parsed, tensors mapped. Nothing in the file is believed: every
// count, length, offset and alignment is checked before use, and the memory the header takes is at most a small
// multiple of the file's size. Throws Error(kCorruptFile, key or tensor, ...), or kUnsupported for what is valid but
// not readable.
class GgufFile {
 public:
  explicit GgufFile(const std::string& path);

  const std::shared_ptr<MappedFile>& file() const { return file_; }
  uint32_t version() const { return version_; }
  const std::map<std::string, GgufValue, std::less<>>& metadata() const { return metadata_; }
  const std::vector<GgufTensor>& tensors() const { return tensors_; }

  // Null when the key is missing; Error(kCorruptFile, key, ...) when it is of another type.
  std::optional<uint64_t> find_unsigned(std::string_view key) const;
  std::optional<std::string_view> find_string(std::string_view key) const;

 private:
  std::shared_ptr<MappedFile> file_;
  uint32_t version_ = 0;
  std::map<std::string, GgufValue, std::less<>> metadata_;
  std::vector<GgufTensor> tensors_;
};

}  // namespace octavo
