#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/weights.h"

namespace octavo {

// A tensor as a safetensors header describes it.
struct SafetensorsRecord {
  std::string name;
  std::string dtype;  // "F32", "BF16", ...
  std::vector<int64_t> shape;
  uint64_t begin = 0;  // bytes [begin, end) of the data section
  uint64_t end = 0;
};

struct SafetensorsFile {
  std::string path;
  uint64_t data_offset = 0;  // where the data section starts
  std::vector<SafetensorsRecord> tensors;
};

// Architectures whose GGUF tensors can be read under Hugging Face's names.
std::vector<std::string> gguf_architectures();

// GGUF names are mapped, q and k rows put back into Hugging Face's order. Error(kUnsupported, ...) for an architecture
// or a tensor type that is not there, naming those that are.
std::unique_ptr<WeightFiles> open_gguf_weights(const GgufFile& gguf);

// The headers were read by the caller; every record is checked again: bounds, overlap, shape against bytes, names.
std::unique_ptr<WeightFiles> open_safetensors_weights(const std::vector<SafetensorsFile>& files);

}  // namespace octavo
