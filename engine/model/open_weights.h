#pragma once
#include <cstdint>
#include <map>
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

// names: GGUF's name of a tensor, without its kind and with "*" for the layer, to the one it gets ("blk.*.attn_q" to
// "model.layers.*.self_attn.q_proj"). Error(kUnsupported, ...) for a tensor type that is not there, naming those that
// are.
std::unique_ptr<WeightFiles> open_gguf_weights(const GgufFile& gguf, const std::map<std::string, std::string>& names);

// The headers were read by the caller; every record is checked again: bounds, overlap, shape against bytes, names.
std::unique_ptr<WeightFiles> open_safetensors_weights(const std::vector<SafetensorsFile>& files);

}  // namespace octavo
