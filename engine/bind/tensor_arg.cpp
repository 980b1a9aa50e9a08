#include "tensor_arg.h"

#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>

#include <array>
#include <utility>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& why) {
  throw Error(ErrorCode::kInvalidArgument, name, cat(name, " ", why));
}

std::string class_name(nb::handle value) { return nb::cast<std::string>(value.type().attr("__name__")); }

std::string dtype_text(nb::dlpack::dtype dtype) {
  switch (static_cast<nb::dlpack::dtype_code>(dtype.code)) {
    case nb::dlpack::dtype_code::Int:
      return cat("int", int{dtype.bits});
    case nb::dlpack::dtype_code::UInt:
      return cat("uint", int{dtype.bits});
    case nb::dlpack::dtype_code::Float:
      return cat("float", int{dtype.bits});
    case nb::dlpack::dtype_code::Bfloat:
      return cat("bfloat", int{dtype.bits});
    case nb::dlpack::dtype_code::Complex:
      return cat("complex", int{dtype.bits});
    default:
      return dtype.bits == 8 ? "bool" : "an unknown dtype";
  }
}

// dtype_name() writes every dtype as torch and NumPy do.
bool matches(nb::dlpack::dtype dtype, DType wanted) {
  return dtype.lanes == 1 && dtype_text(dtype) == dtype_name(wanted);
}

// What the value's owner gives for DLPack, in order with the stream that will use it.
nb::object dlpack_capsule(nb::handle value, uintptr_t stream) {
  constexpr uintptr_t kDefaultStream = 1;  // as DLPack numbers it; 0 may not be said
  return value.attr("__dlpack__")(nb::arg("stream") = stream ? stream : kDefaultStream);
}

template <class Tensor>
Tensor import(nb::handle value, const char* name, const TensorPlace& place) {
  if (const auto device = device_of(value); device && *device != place.name()) {
    refuse(name, cat("is on device \"", *device, "\", must be on \"", place.name(), "\", where this call runs"));
  }
  Tensor t;
  if (place.kind == TensorPlace::kGpu) {
    if (!nb::hasattr(value, "__dlpack__")) {
      refuse(name, cat("must be a tensor on ", place.name(), " that offers DLPack, got ", class_name(value)));
    }
    if (!nb::try_cast<Tensor>(dlpack_capsule(value, place.stream), t, false)) {
      refuse(name, cat("cannot be taken by DLPack from ", class_name(value)));
    }
  } else if (!nb::try_cast<Tensor>(value, t, false)) {
    ReadTensor readable;
    if (nb::try_cast<ReadTensor>(value, readable, false)) refuse(name, "is read-only, must be writable");
    refuse(name, cat("must be a torch tensor or a NumPy array, got ", class_name(value)));
  }
  const int type = place.kind == TensorPlace::kGpu ? nb::device::cuda::value : nb::device::cpu::value;
  if (t.device_type() != type || (type != nb::device::cpu::value && t.device_id() != place.ordinal)) {
    refuse(name, cat("is on device ", t.device_id(), " of DLPack's type ", t.device_type(), ", must be on \"",
                     place.name(), "\", where this call runs"));
  }
  return t;
}

template <class Tensor>
Tensor take(nb::handle value, const char* name, std::span<const DType> dtypes, int ndim, const TensorPlace& place) {
  if (nb::hasattr(value, "requires_grad") && nb::cast<bool>(nb::bool_(value.attr("requires_grad")))) {
    refuse(name, "requires grad, and this kernel has no backward pass; pass its .detach()");
  }
  Tensor t = import<Tensor>(value, name, place);
  std::string wanted;
  bool fits = false;
  for (DType dtype : dtypes) {
    fits = fits || matches(t.dtype(), dtype);
    wanted += cat(wanted.empty() ? "" : " or ", dtype_name(dtype));
  }
  if (!fits) refuse(name, cat("is ", dtype_text(t.dtype()), ", must be ", wanted));
  if (ndim >= 0 ? static_cast<int>(t.ndim()) != ndim : t.ndim() == 0) {
    refuse(name, cat("has ", t.ndim(), " dimensions, must have ", ndim >= 0 ? cat(ndim) : "at least 1"));
  }
  int64_t expected = 1;
  for (size_t i = t.ndim(); i-- > 0;) {
    if (t.shape(i) != 1 && t.size() != 0 && t.stride(i) != expected) {
      refuse(name, "is not contiguous; pass its .contiguous() (NumPy: ascontiguousarray)");
    }
    expected *= static_cast<int64_t>(t.shape(i));
  }
  return t;
}

}  // namespace

std::string TensorPlace::name() const { return kind == kHost ? "cpu" : cat("cuda:", ordinal); }

std::optional<std::string> device_of(nb::handle value) {
  try {
    if (nb::hasattr(value, "device") &&
        nb::hasattr(value.attr("device"), "type")) {  // torch's, which is the quicker one
      const nb::object device = value.attr("device");
      const auto type = nb::cast<std::string>(device.attr("type"));
      return type == "cuda" ? cat(type, ":", nb::cast<int>(device.attr("index"))) : type;
    }
    if (!nb::hasattr(value, "__dlpack_device__")) return std::nullopt;
    const auto [type, ordinal] = nb::cast<std::pair<int, int>>(value.attr("__dlpack_device__")());
    if (type == nb::device::cpu::value) return "cpu";
    if (type == nb::device::cuda::value) return cat("cuda:", ordinal);
    return cat("DLPack's type ", type, ":", ordinal);
  } catch (const std::exception&) {  // of Python, or something else than a pair of integers
    return std::nullopt;
  }
}

ReadTensor read_tensor(nb::handle value, const char* name, std::span<const DType> dtypes, int ndim,
                       const TensorPlace& place) {
  return take<ReadTensor>(value, name, dtypes, ndim, place);
}

WriteTensor write_tensor(nb::handle value, const char* name, std::span<const DType> dtypes, int ndim,
                         const TensorPlace& place) {
  return take<WriteTensor>(value, name, dtypes, ndim, place);
}

std::vector<int32_t> index_tensor(nb::handle value, const char* name, int64_t lo, int64_t hi) {
  const ReadTensor t = read_tensor(value, name, std::array{DType::kI32, DType::kI64}, 1);
  std::vector<int32_t> out(t.size());
  for (size_t i = 0; i < out.size(); ++i) {
    const int64_t v =
        t.dtype().bits == 32 ? static_cast<const int32_t*>(t.data())[i] : static_cast<const int64_t*>(t.data())[i];
    if (v < lo || v > hi) refuse(name, cat("[", i, "] is ", v, ", must lie in [", lo, ", ", hi, "]"));
    out[i] = static_cast<int32_t>(v);
  }
  return out;
}

void check_extent(const char* name, const char* what, int64_t got, int64_t wanted) {
  if (got != wanted) refuse(name, cat("has ", what, " ", got, ", must be ", wanted));
}

}  // namespace octavo
