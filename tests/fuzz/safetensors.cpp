// Safetensors files as the engine gets them: records that a header gave, over files of any size.
#include <algorithm>
#include <array>
#include <cstring>
#include <memory>

#include "base/errors.h"
#include "memory_file.h"
#include "model/open_weights.h"
#include "model_bytes.h"
#include "target.h"

namespace octavo::fuzz {

namespace {

constexpr std::array<std::string_view, 16> kTypes = {"F32", "F16", "BF16", "F64", "F8_E4M3", "F8_E5M2", "I64",  "I32",
                                                     "I16", "I8",  "U64",  "U32", "U16",     "U8",      "BOOL", "X9"};
constexpr std::array<uint64_t, 16> kTypeBytes = {4, 2, 2, 8, 1, 1, 8, 4, 2, 1, 8, 4, 2, 1, 1, 1};
constexpr uint64_t kMostFiles = 4, kMostTensors = 64, kMostDims = 8, kMostBytes = 1 << 16;

// An input is a flat list of numbers; where it ends, zeros follow.
class Cursor {
 public:
  explicit Cursor(std::span<const uint8_t> input) : input_(input) {}

  uint64_t number(size_t size) {
    uint64_t value = 0;
    const size_t there = std::min(size, input_.size());
    std::memcpy(&value, input_.data(), there);
    input_ = input_.subspan(there);
    return value;
  }

 private:
  std::span<const uint8_t> input_;
};

SafetensorsRecord read_record(Cursor& in) {
  SafetensorsRecord record;
  record.name = "tensor" + std::to_string(in.number(1));
  record.dtype = kTypes[in.number(1) % kTypes.size()];
  const uint64_t dims = in.number(1) % (kMostDims + 1);
  for (uint64_t d = 0; d < dims; ++d) record.shape.push_back(static_cast<int64_t>(in.number(8)));
  record.begin = in.number(8);
  record.end = in.number(8);
  return record;
}

}  // namespace

std::vector<uint8_t> make_input(Random& random) {
  Writer out;
  const uint64_t files = 1 + below(random, 2);
  out.number(files, 1);
  uint64_t name = 0;
  for (uint64_t f = 0; f < files; ++f) {
    const uint64_t header = below(random, 40), tensors = below(random, 5);
    Writer records;
    uint64_t end = 0;
    std::vector<std::array<uint64_t, 6>> described;
    for (uint64_t t = 0; t < tensors; ++t) {
      const uint64_t type = chance(random, 60) ? below(random, 3) : below(random, 15);
      const uint64_t rows = 1 + below(random, 8), columns = 1 + below(random, 40);
      const uint64_t bytes = rows * columns * kTypeBytes[type];
      described.push_back({name++, type, rows, columns, end, end + bytes});
      end += bytes;
    }
    out.number(header + end, 4);  // the file's size
    out.number(header, 8);
    out.number(tensors, 1);
    for (const auto& [id, type, rows, columns, begin, stop] : described) {
      out.number(id, 1);
      out.number(type, 1);
      out.number(2, 1);
      for (const uint64_t value : {rows, columns, begin, stop}) out.number(value, 8);
    }
  }
  return out.mutated(random, chance(random, 10) ? 0 : 1 + static_cast<int>(below(random, 4)));
}

std::optional<std::string> read_input(std::span<const uint8_t> input) {
  Cursor in(input);
  std::vector<std::unique_ptr<MemoryFile>> kept;
  std::vector<SafetensorsFile> files(in.number(1) % (kMostFiles + 1));
  for (SafetensorsFile& file : files) {
    const std::vector<uint8_t> content(in.number(4) % kMostBytes, 1);
    kept.push_back(std::make_unique<MemoryFile>(content));
    file.path = kept.back()->path();
    file.data_offset = in.number(8);
    const uint64_t tensors = in.number(1) % kMostTensors;
    for (uint64_t t = 0; t < tensors; ++t) file.tensors.push_back(read_record(in));
  }
  try {
    read_all(*open_safetensors_weights(files));
  } catch (const Error& error) {
    return std::string(error_code_name(error.code()));
  }
  return std::nullopt;
}

}  // namespace octavo::fuzz
