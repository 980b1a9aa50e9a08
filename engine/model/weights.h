#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "ops/weight_source.h"

namespace octavo {

// What a tensor is, whether or not the engine can read its format.
struct WeightInfo {
  std::string name;
  std::string format;          // "f32", "q4_1", ..., or the file's own word for a format that cannot be read
  std::vector<int64_t> shape;  // outermost first
  size_t bytes = 0;            // as it lies in the file
};

// Named tensors of a checkpoint under Hugging Face's names ("model.layers.0.self_attn.q_proj.weight"), whatever the
// file calls them: GGUF, safetensors (single or sharded), tensors handed over by the caller.
class WeightFiles {
 public:
  virtual ~WeightFiles() = default;
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  virtual WeightInfo info(const std::string& name) const = 0;  // Error(kNotFound, name, ...)
  // The matrix (a vector is [1, k] or [n, 1]), checked against the expected shape; Error(kNotFound / kCorruptFile /
  // kUnsupported, name, ...). The bytes stay valid until release(name) or the object's end.
  virtual MatrixSource matrix(const std::string& name, int n, int k) const = 0;
  // Matrix `index` of `count` that lie stacked in a tensor [count, n, k] (vectors: [count, n] with k = 1).
  virtual MatrixSource stacked(const std::string& name, int index, int count, int n, int k) const = 0;
  // The bytes of a tensor of single bytes (U8), checked against the expected shape.
  virtual const std::byte* bytes(const std::string& name, const std::vector<int64_t>& shape) const = 0;
  // The caller has packed it: pages may go back to the system.
  virtual void release(const std::string& name) = 0;
  virtual size_t file_bytes() const = 0;  // of all tensors
};

}  // namespace octavo
