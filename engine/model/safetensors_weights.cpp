#include <algorithm>

#include "base/errors.h"
#include "base/format.h"
#include "model/open_weights.h"
#include "model/tensor_table.h"

namespace octavo {

namespace {

struct SafetensorsType {
  std::string_view name;
  uint64_t bytes;
  std::optional<WeightFormat> format;
};

constexpr SafetensorsType kTypes[] = {
    {"F32", 4, WeightFormat::kF32}, {"F16", 2, WeightFormat::kF16}, {"BF16", 2, WeightFormat::kBF16},
    {"F64", 8, std::nullopt},       {"F8_E4M3", 1, std::nullopt},   {"F8_E5M2", 1, std::nullopt},
    {"I64", 8, std::nullopt},       {"I32", 4, std::nullopt},       {"I16", 2, std::nullopt},
    {"I8", 1, std::nullopt},        {"U64", 8, std::nullopt},       {"U32", 4, std::nullopt},
    {"U16", 2, std::nullopt},       {"U8", 1, std::nullopt},        {"BOOL", 1, std::nullopt},
};

[[noreturn]] void corrupt(const SafetensorsFile& file, const std::string& name, const std::string& message) {
  throw Error(ErrorCode::kCorruptFile, name, cat(file.path, ": tensor ", name, " ", message));
}

const SafetensorsType& find_type(const SafetensorsFile& file, const SafetensorsRecord& t) {
  for (const SafetensorsType& type : kTypes) {
    if (type.name == t.dtype) return type;
  }
  throw Error(ErrorCode::kUnsupported, t.name,
              cat(file.path, ": tensor ", t.name, " has dtype ", t.dtype, "; supported: F32, F16, BF16"));
}

uint64_t shape_bytes(const SafetensorsFile& file, const SafetensorsRecord& t, uint64_t item_bytes) {
  auto bytes = static_cast<int64_t>(item_bytes);
  for (const int64_t size : t.shape) {
    if (size < 0 || __builtin_mul_overflow(bytes, size, &bytes)) {
      corrupt(file, t.name, cat("has shape ", shape_text(t.shape), ", negative or too large"));
    }
  }
  return static_cast<uint64_t>(bytes);
}

// The format promises no alignment. A tensor whose elements lie askew (no writer that pads makes one) is copied.
void align(StoredTensor& t, uint64_t item_bytes) {
  if (reinterpret_cast<uintptr_t>(t.data) % item_bytes == 0) return;
  auto copy = std::make_shared<std::vector<std::byte>>(t.data, t.data + t.info.bytes);
  t.data = copy->data();
  t.owner = std::move(copy);
  t.file = nullptr;
}

void check_overlap(const SafetensorsFile& file) {
  std::vector<const SafetensorsRecord*> order;
  for (const SafetensorsRecord& t : file.tensors) order.push_back(&t);
  std::sort(order.begin(), order.end(), [](auto* a, auto* b) { return a->begin < b->begin; });
  for (size_t i = 1; i < order.size(); ++i) {
    if (order[i - 1]->end > order[i]->begin) corrupt(file, order[i]->name, cat("overlaps ", order[i - 1]->name));
  }
}

}  // namespace

std::unique_ptr<TensorTable> open_safetensors_weights(const std::vector<SafetensorsFile>& files) {
  auto table = std::make_unique<TensorTable>();
  for (const SafetensorsFile& file : files) {
    const auto mapped = std::make_shared<MappedFile>(file.path);
    const uint64_t size = mapped->bytes().size();
    if (file.data_offset > size) {
      throw Error(ErrorCode::kCorruptFile, file.path,
                  cat(file.path, ": the header ends at byte ", file.data_offset, ", the file has ", size));
    }
    for (const SafetensorsRecord& t : file.tensors) {
      const SafetensorsType& type = find_type(file, t);
      if (t.begin > t.end || t.end > size - file.data_offset) {
        corrupt(
            file, t.name,
            cat("lies at bytes ", t.begin, " to ", t.end, " of the data section, which has ", size - file.data_offset));
      }
      const uint64_t bytes = shape_bytes(file, t, type.bytes);
      if (bytes != t.end - t.begin) {
        corrupt(file, t.name,
                cat("of shape ", shape_text(t.shape), " and dtype ", t.dtype, " needs ", bytes,
                    " bytes, the header gives it ", t.end - t.begin));
      }
      StoredTensor stored;
      stored.info = {t.name, type.format ? weight_format_info(*type.format).name : t.dtype, t.shape, bytes};
      stored.format = type.format;
      stored.data = mapped->bytes().data() + file.data_offset + t.begin;
      stored.file = mapped;
      align(stored, type.bytes);
      table->add(std::move(stored));
    }
    check_overlap(file);
  }
  return table;
}

}  // namespace octavo
