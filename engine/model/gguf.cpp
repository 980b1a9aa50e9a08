#include "model/gguf.h"

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

static_assert(std::endian::native == std::endian::little, "GGUF is read as little endian");

constexpr int kMaxArrayDepth = 4;
constexpr uint64_t kMaxNameBytes = 65535;
constexpr uint32_t kMaxDims = 4;
constexpr uint64_t kMinAlignment = 8;
constexpr uint64_t kMaxAlignment = uint64_t{1} << 20;
// The fewest bytes that one item of a header can take: bounds every count before anything is reserved for it.
constexpr uint64_t kMinPairBytes = 8 + 1 + 4 + 1;
constexpr uint64_t kMinTensorBytes = 8 + 1 + 4 + 8 + 4 + 8;

// Bytes of one scalar, the fewest bytes of one string or array; 0: no such type.
size_t min_value_bytes(uint32_t type) {
  switch (static_cast<GgufValueType>(type)) {
    case GgufValueType::kU8:
    case GgufValueType::kI8:
    case GgufValueType::kBool:
      return 1;
    case GgufValueType::kU16:
    case GgufValueType::kI16:
      return 2;
    case GgufValueType::kU32:
    case GgufValueType::kI32:
    case GgufValueType::kF32:
      return 4;
    case GgufValueType::kString:
    case GgufValueType::kU64:
    case GgufValueType::kI64:
    case GgufValueType::kF64:
      return 8;
    case GgufValueType::kArray:
      return 12;
  }
  return 0;
}

template <class T>
T load(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return value;
}

GgufValue load_scalar(GgufValueType type, const std::byte* at) {
  switch (type) {
    case GgufValueType::kU8:
      return uint64_t{load<uint8_t>(at)};
    case GgufValueType::kI8:
      return int64_t{load<int8_t>(at)};
    case GgufValueType::kU16:
      return uint64_t{load<uint16_t>(at)};
    case GgufValueType::kI16:
      return int64_t{load<int16_t>(at)};
    case GgufValueType::kU32:
      return uint64_t{load<uint32_t>(at)};
    case GgufValueType::kI32:
      return int64_t{load<int32_t>(at)};
    case GgufValueType::kU64:
      return load<uint64_t>(at);
    case GgufValueType::kI64:
      return load<int64_t>(at);
    case GgufValueType::kF32:
      return double{load<float>(at)};
    case GgufValueType::kF64:
      return load<double>(at);
    case GgufValueType::kBool:
      return load<uint8_t>(at) != 0;
    case GgufValueType::kString:
    case GgufValueType::kArray:
      break;
  }
  throw Error(ErrorCode::kInternal, "gguf", "not a scalar");
}

// Reads a header front to back; every read is checked against the end of the file.
class Reader {
 public:
  explicit Reader(const MappedFile& file) : path_(file.path()), bytes_(file.bytes()) {}

  uint64_t offset() const { return offset_; }
  uint64_t left() const { return bytes_.size() - offset_; }

  [[noreturn]] void corrupt(const std::string& what, const std::string& message) const {
    throw Error(ErrorCode::kCorruptFile, what, cat(path_, ": ", message));
  }

  template <class T>
  T read(const std::string& what) {
    return load<T>(take(sizeof(T), what));
  }

  std::string_view read_string(const std::string& what, uint64_t limit) {
    const auto length = read<uint64_t>(what);
    if (length > limit) corrupt(what, cat(what, " has a string of ", length, " bytes, the limit is ", limit));
    return {reinterpret_cast<const char*>(take(length, what)), length};
  }

  // A metadata key or a tensor's name.
  std::string read_name(const std::string& what) {
    const std::string_view name = read_string(what, kMaxNameBytes);
    if (name.empty()) corrupt(what, cat(what, " is empty"));
    for (const char c : name) {
      if (c < 0x20 || c > 0x7e) corrupt(what, cat(what, " is not printable ASCII"));
    }
    return std::string(name);
  }

  // A count of items that take at least `item_bytes` each.
  uint64_t read_count(const std::string& what, uint64_t item_bytes) {
    const auto count = read<uint64_t>(what);
    check_count(what, count, item_bytes);
    return count;
  }

  void check_count(const std::string& what, uint64_t count, uint64_t item_bytes) const {
    if (count > left() / item_bytes) {
      corrupt(what, cat(what, " is ", count, ", but the ", left(), " bytes left in the file hold at most ",
                        left() / item_bytes));
    }
  }

  GgufValue read_value(const std::string& key, uint32_t type) {
    const size_t size = min_value_bytes(type);
    if (size == 0) corrupt(key, cat(key, " has unknown value type ", type));
    if (type == static_cast<uint32_t>(GgufValueType::kString)) return read_string(key, left());
    if (type == static_cast<uint32_t>(GgufValueType::kArray)) return read_array(key, 0);
    return load_scalar(static_cast<GgufValueType>(type), take(size, key));
  }

 private:
  const std::byte* take(uint64_t size, const std::string& what) {
    if (size > left()) {
      corrupt(what, cat("the file is truncated: it ends inside ", what, ", ", size, " bytes needed at offset ", offset_,
                        ", the file has ", bytes_.size()));
    }
    const std::byte* at = bytes_.data() + offset_;
    offset_ += size;
    return at;
  }

  std::shared_ptr<const GgufArray> read_array(const std::string& key, int depth) {
    if (depth == kMaxArrayDepth) corrupt(key, cat(key, " nests arrays deeper than ", kMaxArrayDepth));
    const auto type = read<uint32_t>(key);
    const size_t item_bytes = min_value_bytes(type);
    if (item_bytes == 0) corrupt(key, cat(key, " is an array of unknown value type ", type));
    auto array = std::make_shared<GgufArray>();
    array->type = static_cast<GgufValueType>(type);
    array->size = read_count(cat("the length of ", key), item_bytes);
    if (array->type == GgufValueType::kString) {
      array->strings.reserve(array->size);
      for (size_t i = 0; i < array->size; ++i) array->strings.push_back(read_string(key, left()));
    } else if (array->type == GgufValueType::kArray) {
      array->arrays.reserve(array->size);
      for (size_t i = 0; i < array->size; ++i) array->arrays.push_back(read_array(key, depth + 1));
    } else {
      array->scalars = take(array->size * item_bytes, key);
    }
    return array;
  }

  const std::string& path_;
  std::span<const std::byte> bytes_;
  uint64_t offset_ = 0;
};

// A tensor as the header describes it, its data not yet located.
struct TensorRecord {
  GgufTensor tensor;
  uint64_t offset = 0;  // from the start of the data section
};

TensorRecord read_tensor(Reader& in) {
  TensorRecord record;
  GgufTensor& t = record.tensor;
  t.name = in.read_name("a tensor's name");
  const auto dims = in.read<uint32_t>(t.name);
  if (dims == 0 || dims > kMaxDims) {
    in.corrupt(t.name, cat("tensor ", t.name, " has ", dims, " dimensions, must be 1 to ", kMaxDims));
  }
  uint64_t elements = 1;
  for (uint32_t d = 0; d < dims; ++d) {
    const auto size = in.read<uint64_t>(t.name);
    if (size == 0 || __builtin_mul_overflow(elements, size, &elements) || elements > INT64_MAX) {
      in.corrupt(t.name, cat("tensor ", t.name, " has a dimension of ", size, ": empty or too large"));
    }
    t.shape.insert(t.shape.begin(), static_cast<int64_t>(size));
  }
  const auto type = in.read<uint32_t>(t.name);
  t.type = find_ggml_type(type);
  if (!t.type) {
    throw Error(ErrorCode::kUnsupported, t.name,
                cat("tensor ", t.name, " has type ", type, ", which is not known; supported: ", supported_formats()));
  }
  const int64_t width = t.shape.back();
  if (width % t.type->block != 0) {
    in.corrupt(t.name, cat("tensor ", t.name, " has rows of ", width, " weights, not a multiple of the ", t.type->block,
                           " in a block of ", t.type->name));
  }
  uint64_t bytes = 0;
  if (__builtin_mul_overflow(elements / t.type->block, static_cast<uint64_t>(t.type->block_bytes), &bytes)) {
    in.corrupt(t.name, cat("tensor ", t.name, " is too large"));
  }
  t.bytes = bytes;
  record.offset = in.read<uint64_t>(t.name);
  return record;
}

// How far the last tensor reaches beyond the `room` of the data section.
uint64_t missing_bytes(const std::vector<TensorRecord>& records, uint64_t room) {
  uint64_t missing = 0;
  for (const TensorRecord& record : records) {
    const uint64_t end = record.offset + record.tensor.bytes;
    if (end >= record.offset && end > room) missing = std::max(missing, end - room);
  }
  return missing;
}

// Gives every tensor its bytes, after checking that they are aligned, inside the file and nobody else's.
std::vector<GgufTensor> place_tensors(const Reader& in, std::vector<TensorRecord> records, uint64_t alignment,
                                      std::span<const std::byte> file) {
  const uint64_t start = (in.offset() + alignment - 1) / alignment * alignment;
  const uint64_t room = start < file.size() ? file.size() - start : 0;
  std::vector<const TensorRecord*> by_offset;
  for (TensorRecord& record : records) {
    GgufTensor& t = record.tensor;
    if (record.offset % alignment != 0) {
      in.corrupt(t.name, cat("tensor ", t.name, " lies at offset ", record.offset, ", not a multiple of the alignment ",
                             alignment));
    }
    if (record.offset > room || t.bytes > room - record.offset) {
      in.corrupt(t.name, cat("tensor ", t.name, " needs ", t.bytes, " bytes at offset ", record.offset,
                             " of the data section, which has ", room, ": the file is truncated, ",
                             missing_bytes(records, room), " bytes are missing"));
    }
    t.data = file.data() + start + record.offset;
    by_offset.push_back(&record);
  }
  std::sort(by_offset.begin(), by_offset.end(), [](auto* a, auto* b) { return a->offset < b->offset; });
  for (size_t i = 1; i < by_offset.size(); ++i) {
    const TensorRecord& before = *by_offset[i - 1];
    if (before.offset + before.tensor.bytes > by_offset[i]->offset) {
      in.corrupt(by_offset[i]->tensor.name,
                 cat("tensors ", before.tensor.name, " and ", by_offset[i]->tensor.name, " overlap"));
    }
  }
  std::vector<GgufTensor> tensors;
  tensors.reserve(records.size());
  for (TensorRecord& record : records) tensors.push_back(std::move(record.tensor));
  return tensors;
}

}  // namespace

GgufValue GgufArray::at(size_t index) const {
  if (type == GgufValueType::kString) return strings[index];
  if (type == GgufValueType::kArray) return arrays[index];
  return load_scalar(type, scalars + index * min_value_bytes(static_cast<uint32_t>(type)));
}

GgufFile::GgufFile(const std::string& path) : file_(std::make_shared<MappedFile>(path)) {
  Reader in(*file_);
  if (std::memcmp(file_->bytes().data(), "GGUF", std::min<size_t>(4, file_->bytes().size())) != 0) {
    in.corrupt(path, "not a GGUF file (it does not begin with GGUF)");
  }
  in.read<uint32_t>("the file's magic");
  version_ = in.read<uint32_t>("the GGUF version");
  if (version_ != 2 && version_ != 3) {
    const bool swapped = version_ != 0 && (version_ & 0xffff) == 0;
    throw Error(ErrorCode::kUnsupported, path,
                cat(path, ": ", swapped ? "the file is big endian" : cat("GGUF version ", version_),
                    "; supported are versions 2 and 3, little endian"));
  }
  const uint64_t num_tensors = in.read_count("the number of tensors", kMinTensorBytes);
  const uint64_t num_pairs = in.read_count("the number of metadata pairs", kMinPairBytes);
  for (uint64_t i = 0; i < num_pairs; ++i) {
    std::string key = in.read_name("a metadata key");
    const auto type = in.read<uint32_t>(key);
    GgufValue value = in.read_value(key, type);
    if (!metadata_.try_emplace(key, std::move(value)).second)
      in.corrupt(key, cat("metadata key ", key, " occurs twice"));
  }
  const uint64_t alignment = find_unsigned("general.alignment").value_or(32);
  if (!std::has_single_bit(alignment) || alignment < kMinAlignment || alignment > kMaxAlignment) {
    in.corrupt("general.alignment", cat("general.alignment is ", alignment, ", must be a power of two from ",
                                        kMinAlignment, " to ", kMaxAlignment));
  }
  std::vector<TensorRecord> records;
  in.check_count("the number of tensors", num_tensors, kMinTensorBytes);
  records.reserve(num_tensors);
  for (uint64_t i = 0; i < num_tensors; ++i) records.push_back(read_tensor(in));
  tensors_ = place_tensors(in, std::move(records), alignment, file_->bytes());
}

std::optional<uint64_t> GgufFile::find_unsigned(std::string_view key) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return std::nullopt;
  if (const auto* value = std::get_if<uint64_t>(&it->second)) return *value;
  if (const auto* value = std::get_if<int64_t>(&it->second); value && *value >= 0) return static_cast<uint64_t>(*value);
  throw Error(ErrorCode::kCorruptFile, std::string(key),
              cat(file_->path(), ": ", key, " must be a non-negative integer"));
}

std::optional<std::string_view> GgufFile::find_string(std::string_view key) const {
  const auto it = metadata_.find(key);
  if (it == metadata_.end()) return std::nullopt;
  if (const auto* value = std::get_if<std::string_view>(&it->second)) return *value;
  throw Error(ErrorCode::kCorruptFile, std::string(key), cat(file_->path(), ": ", key, " must be a string"));
}

}  // namespace octavo
