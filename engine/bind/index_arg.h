#pragma once
#include <cstdint>
#include <vector>

#include "bind.h"
#include "op_inputs.h"
#include "tensor_arg.h"

namespace octavo {

// Indices that an op reads where it runs. Those in host memory are checked and moved; those that lie on the op's GPU
// already are taken at their word.
class IndexArg {
 public:
  // int32 or int64 in host memory, each within [lo, hi], or int32 in `place`. Error(kInvalidArgument, name, ...).
  IndexArg(nb::handle value, const char* name, int64_t lo, int64_t hi, const TensorPlace& place);

  size_t size() const { return on_gpu_ ? tensor_.size() : host_.size(); }
  size_t room() const { return on_gpu_ ? 0 : OpInputs::room<int32_t>(host_.size()); }
  const int32_t* place(OpInputs& inputs) const {
    return on_gpu_ ? static_cast<const int32_t*>(tensor_.data()) : inputs.place(host_);
  }

 private:
  bool on_gpu_;
  ReadTensor tensor_;  // on the GPU
  std::vector<int32_t> host_;
};

}  // namespace octavo
