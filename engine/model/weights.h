#pragma once
#include <memory>
#include <string>
#include <vector>

#include "ops/weight_source.h"

namespace octavo {

// Named tensors of a checkpoint under Hugging Face's names ("model.layers.0.self_attn.q_proj.weight"), whatever the
// file calls them: GGUF, safetensors (single or sharded), tensors handed over by the caller.
class WeightFiles {
 public:
  virtual ~WeightFiles() = default;
  virtual std::vector<std::string> names() const = 0;
  virtual bool has(const std::string& name) const = 0;
  // The matrix (a vector is [1, k]), checked against the expected shape; Error(kNotFound / kCorruptFile, name, ...).
  // The bytes stay valid until release(name) or the object's end.
  virtual MatrixSource matrix(const std::string& name, int n, int k) const = 0;
  // The caller has packed it: pages may go back to the system.
  virtual void release(const std::string& name) = 0;
  virtual size_t file_bytes() const = 0;
};

}  // namespace octavo
