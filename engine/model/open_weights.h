#pragma once
#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/gguf.h"
#include "model/tensor_table.h"

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

// How the matrices of a checkpoint are quantized, as its configuration has it.
struct CheckpointQuantization {
  std::string method;          // "gptq", "awq", "compressed-tensors", "fp8"
  int bits = 4;                // of a packed code
  bool zero_less_one = false;  // gptq: zero points are stored less 1
  int block_rows = 0;          // fp8: of a block with one scale; 0: as the shape of the scales tells
  int block_columns = 0;
};

// The same tensors, in which each quantized matrix X stands as X.weight, without its scales and zero points. It is
// rewritten to blocks of the engine's own when it is asked for and until it is released.
std::unique_ptr<WeightFiles> open_quantized_weights(std::unique_ptr<TensorTable> table,
                                                    const CheckpointQuantization& quantization);

// The headers were read by the caller; every record is checked again: bounds, overlap, shape against bytes, names.
std::unique_ptr<TensorTable> open_safetensors_weights(const std::vector<SafetensorsFile>& files);

}  // namespace octavo
