#pragma once
#include <nanobind/ndarray.h>

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "bind.h"
#include "tensor/dtype.h"

namespace octavo {

using ReadTensor = nb::ndarray<nb::ro>;
using WriteTensor = nb::ndarray<>;

// Where the tensors of a call lie.
struct TensorPlace {
  enum Kind { kHost, kGpu };
  Kind kind = kHost;
  int ordinal = 0;  // of the GPU
  uintptr_t stream =
      0;  // in which they are read and written, a cudaStream_t: their owner lets it wait for what it must

  std::string name() const;  // "cpu", "cuda:1"
};

// The same for where a tensor lies, whatever made it; empty where it does not say.
std::optional<std::string> device_of(nb::handle value);

// A torch tensor, a NumPy array or what else offers DLPack, handed over without a copy: in its place, contiguous, of
// one of `dtypes`, with `ndim` dimensions (-1: any number from one). Error(kInvalidArgument, name, ...) says what is
// wrong with it. The array keeps the memory alive; only its owner's thread may drop it, and with the GIL held.
ReadTensor read_tensor(nb::handle value, const char* name, std::span<const DType> dtypes, int ndim,
                       const TensorPlace& place = {});
WriteTensor write_tensor(nb::handle value, const char* name, std::span<const DType> dtypes, int ndim,
                         const TensorPlace& place = {});

// A one-dimensional tensor of int32 or int64 in host memory, copied; every value must lie in [lo, hi].
std::vector<int32_t> index_tensor(nb::handle value, const char* name, int64_t lo, int64_t hi);

template <class Tensor>
DType tensor_dtype(const Tensor& t) {
  const auto code = static_cast<nb::dlpack::dtype_code>(t.dtype().code);
  const int bits = t.dtype().bits;
  if (code == nb::dlpack::dtype_code::Float) return bits == 16 ? DType::kF16 : DType::kF32;
  if (code == nb::dlpack::dtype_code::Bfloat) return DType::kBF16;
  if (code == nb::dlpack::dtype_code::UInt) return DType::kU8;
  return bits == 8 ? DType::kI8 : bits == 32 ? DType::kI32 : DType::kI64;
}

// Error(kInvalidArgument, name, ...) unless dimension `axis` of `t`, called `what`, is `wanted`.
void check_extent(const char* name, const char* what, int64_t got, int64_t wanted);

}  // namespace octavo
