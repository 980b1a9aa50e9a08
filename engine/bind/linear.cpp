#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <array>
#include <span>

#include "backend_ops.h"
#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "row_ops.h"
#include "tensor/buffer.h"
#include "tensor_arg.h"

namespace octavo {
namespace {

using AnyMatrix = nb::ndarray<nb::ro, nb::ndim<2>, nb::device::cpu>;
using Matrix = nb::ndarray<const float, nb::ndim<2>, nb::device::cpu>;
using MutableMatrix = nb::ndarray<float, nb::ndim<2>, nb::device::cpu>;
using Vector = nb::ndarray<const float, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using Ids = nb::ndarray<const int32_t, nb::ndim<1>, nb::device::cpu, nb::c_contig>;
using NumpyMatrix = nb::ndarray<nb::numpy, float, nb::ndim<2>>;

[[noreturn]] void invalid(const std::string& param, const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, param, message);
}

WeightFormat dense_format(nb::dlpack::dtype dtype) {
  const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
  if (code == nb::dlpack::dtype_code::Float && dtype.bits == 32) return WeightFormat::kF32;
  if (code == nb::dlpack::dtype_code::Float && dtype.bits == 16) return WeightFormat::kF16;
  if (code == nb::dlpack::dtype_code::Bfloat && dtype.bits == 16) return WeightFormat::kBF16;
  invalid("weight", "a weight must be float32, float16 or bfloat16, or uint8 blocks with their format's name");
}

WeightFormat quantized_format(const std::string& name) {
  std::string known;
  for (int i = 0; i < kWeightFormats; ++i) {
    const auto format = static_cast<WeightFormat>(i);
    const WeightFormatInfo info = weight_format_info(format);
    if (info.block == 1) continue;
    if (name == info.name) return format;
    known += cat(known.empty() ? "" : ", ", info.name);
  }
  throw Error(ErrorCode::kUnsupported, "format", cat("quantized format \"", name, "\" is not supported: ", known));
}

using Part = std::tuple<AnyMatrix, std::string, std::vector<int32_t>>;

template <class Array>
MatrixSource matrix_source(const Array& array, const std::string& format) {
  if (array.shape(1) > 0 && array.stride(1) != 1) invalid("weight", "a weight's rows must be contiguous");
  MatrixSource source;
  source.name = "weight";
  source.n = static_cast<int>(array.shape(0));
  source.data = static_cast<const std::byte*>(array.data());
  source.row_bytes = static_cast<size_t>(array.stride(0)) * array.itemsize();
  if (format.empty()) {
    source.format = dense_format(array.dtype());
    source.k = static_cast<int>(array.shape(1));
    return source;
  }
  source.format = quantized_format(format);
  const auto info = weight_format_info(source.format);
  if (array.itemsize() != 1 || array.shape(1) % info.block_bytes != 0) {
    invalid("weight", cat(format, " rows must be whole blocks of ", info.block_bytes, " bytes, got ",
                          array.shape(1) * array.itemsize(), " bytes"));
  }
  source.k = static_cast<int>(array.shape(1)) / info.block_bytes * info.block;
  return source;
}

std::unique_ptr<PackedWeight> pack(BackendOps& ops, const std::vector<Part>& parts, const std::string& pack_as,
                                   const std::vector<int32_t>& input_order) {
  std::vector<MatrixSource> sources;
  for (const auto& [array, format, row_order] : parts) {
    sources.push_back(matrix_source(array, format));
    sources.back().row_order = row_order;
    sources.back().input_order = input_order;
    if (!pack_as.empty()) sources.back().pack_as = quantized_format(pack_as);
  }
  nb::gil_scoped_release nogil;
  return ops.backend().pack(ops.queue(), sources);
}

// A weight in host memory, or on the ops' GPU: it is packed on the host.
std::unique_ptr<PackedWeight> pack_tensor(BackendOps& ops, nb::handle weight, const std::string& format) {
  constexpr std::array kDense{DType::kF32, DType::kF16, DType::kBF16};
  constexpr std::array kBlocks{DType::kU8};
  const bool on_gpu = ops.place().kind == TensorPlace::kGpu && device_of(weight) == ops.place().name();
  const std::span<const DType> dtypes = format.empty() ? std::span<const DType>(kDense) : kBlocks;
  const ReadTensor tensor = read_tensor(weight, "weight", dtypes, 2, on_gpu ? ops.place() : TensorPlace{});
  MatrixSource source = matrix_source(tensor, format);
  nb::gil_scoped_release nogil;
  Buffer host(on_gpu ? tensor.nbytes() : 0);
  if (on_gpu) {
    ops.backend().download(ops.queue(), host.data(), source.data, host.size());
    ops.wait();
    source.data = host.data();
  }
  return ops.backend().pack(ops.queue(), {source});
}

std::unique_ptr<OutputScreen> make_screen(BackendOps& ops, const PackedWeight& weight) {
  nb::gil_scoped_release nogil;
  return ops.backend().make_screen(ops.queue(), weight);
}

NumpyMatrix new_matrix(size_t rows, size_t columns) {
  auto values = std::make_unique<float[]>(rows * columns);
  float* data = values.release();
  return {data, {rows, columns}, nb::capsule(data, [](void* p) noexcept { delete[] static_cast<float*>(p); })};
}

NumpyMatrix dequantize(const PackedWeight& weight) {
  NumpyMatrix out = new_matrix(weight.n(), weight.k());
  nb::gil_scoped_release nogil;
  for (int row = 0; row < weight.n(); ++row)
    weight.dequantize_row(row, out.data() + static_cast<size_t>(row) * weight.k());
  return out;
}

void check_vector(const std::optional<Vector>& vector, const char* name, int size) {
  if (vector && vector->shape(0) != static_cast<size_t>(size)) {
    invalid(name, cat(name, " has ", vector->shape(0), " elements, ", size, " are needed"));
  }
}

void linear_into(BackendOps& ops, const PackedWeight& weight, const Matrix& x, const MutableMatrix& out,
                 const std::string& prologue, const std::optional<Vector>& norm_weight, float eps,
                 const std::optional<Vector>& bias, bool accumulate, const OutputScreen* screen) {
  LinearParams p;
  p.weight = &weight;
  p.prologue = parse_prologue(prologue);
  const bool gated = p.prologue != Prologue::kNone && p.prologue != Prologue::kRmsNorm;
  const size_t width = static_cast<size_t>(weight.k()) * (gated ? 2 : 1);
  if (x.shape(1) != width) invalid("x", cat("x has ", x.shape(1), " columns, ", width, " are needed"));
  if (x.stride(1) != 1) invalid("x", "the rows of x must be contiguous");
  if (out.shape(0) != x.shape(0) || out.shape(1) != static_cast<size_t>(weight.n()) || out.stride(1) != 1) {
    invalid("out", cat("out must be [", x.shape(0), ", ", weight.n(), "] with contiguous rows"));
  }
  if (p.prologue == Prologue::kRmsNorm && !norm_weight) invalid("norm_weight", "rms_norm needs norm_weight");
  check_vector(norm_weight, "norm_weight", weight.k());
  check_vector(bias, "bias", weight.n());
  p.x = x.data();
  p.ldx = x.stride(0);
  p.m = static_cast<int>(x.shape(0));
  p.norm_weight = norm_weight ? norm_weight->data() : nullptr;
  p.eps = eps;
  p.bias = bias ? bias->data() : nullptr;
  p.accumulate = accumulate;
  p.y = out.data();
  p.ldy = out.stride(0);
  if (screen) {
    const PackedWeight& coarse = screen->coarse();
    if (coarse.n() != weight.n() || coarse.k() != weight.k()) invalid("screen", "the screen is another matrix's");
    if (bias || accumulate) invalid("screen", "a screened product has no bias and is not accumulated");
    p.screen = screen;
  }
  nb::gil_scoped_release nogil;
  const int max_k = std::max(weight.k(), screen ? screen->columns() : 0);
  ops.reserve({.max_tokens = p.m, .max_k = max_k, .max_n = weight.n()});
  ops.backend().linear(ops.queue(), p);
  ops.wait();
}

NumpyMatrix embed(BackendOps& ops, const PackedWeight& table, const Ids& ids, float scale) {
  NumpyMatrix out = new_matrix(ids.shape(0), table.k());
  nb::gil_scoped_release nogil;
  ops.backend().embed(ops.queue(), {&table, ids.data(), static_cast<int>(ids.shape(0)), scale, out.data()});
  ops.wait();
  return out;
}

}  // namespace

void bind_linear(nb::module_& m) {
  nb::class_<PackedWeight>(m, "PackedWeight", "A matrix [n, k] in the layout of a device's kernels.")
      .def_prop_ro("n", &PackedWeight::n)
      .def_prop_ro("k", &PackedWeight::k)
      .def_prop_ro("nbytes", &PackedWeight::bytes)
      .def_prop_ro("format", &PackedWeight::format)
      .def("dequantize", &dequantize, "float32 [n, k]: exactly the values that linear multiplies with.");
  m.def("pack", &pack, nb::arg("ops"), nb::arg("parts"), nb::arg("pack_as") = "",
        nb::arg("input_order") = std::vector<int32_t>{}, nb::keep_alive<0, 1>(),
        "Packs matrices with the same k one below the other. parts: (array, format, row_order) each; a dense array "
        "[n, k] has format \"\", rows of raw GGUF blocks (uint8) name theirs; row_order may be empty. Dense ones are "
        "quantized to pack_as (q8_0, q4_1). Column j meets input feature input_order[j], where that is given.");
  nb::class_<OutputScreen>(m, "OutputScreen", "A coarser copy of a matrix that finds its greatest outputs.")
      .def_prop_ro("max_tokens", &OutputScreen::max_tokens)
      .def_prop_ro("nbytes", &OutputScreen::bytes);
  m.def("make_screen", &make_screen, nb::arg("ops"), nb::arg("weight"), nb::keep_alive<0, 1>(), nb::keep_alive<0, 2>(),
        "None where it would save nothing.");
  m.def("pack_tensor", &pack_tensor, nb::arg("ops"), nb::arg("weight"), nb::arg("format"), nb::keep_alive<0, 1>(),
        "Packs one matrix as pack does.");
  m.def("linear_into", &linear_into, nb::arg("ops"), nb::arg("weight"), nb::arg("x").noconvert(),
        nb::arg("out").noconvert(), nb::arg("prologue") = "none", nb::arg("norm_weight").noconvert() = nb::none(),
        nb::arg("eps") = 1e-5f, nb::arg("bias").noconvert() = nb::none(), nb::arg("accumulate") = false,
        nb::arg("screen") = nb::none(),
        "out [m, n] = (or +=) prologue(x) [m, k] @ weight.T + bias, float32, nothing copied. With the weight's screen "
        "only the greatest outputs of each row are right, the others are smaller.");
  m.def("embed", &embed, nb::arg("ops"), nb::arg("table"), nb::arg("ids").noconvert(), nb::arg("scale") = 1.0f,
        "float32 [len(ids), k]: rows of the table times scale.");
}

}  // namespace octavo
