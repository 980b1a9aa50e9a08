#include <nanobind/ndarray.h>
#include <nanobind/stl/map.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/shared_ptr.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/unique_ptr.h>
#include <nanobind/stl/vector.h>

#include "base/errors.h"
#include "base/format.h"
#include "bind.h"
#include "model/dense.h"
#include "model/gguf.h"
#include "model/open_weights.h"
#include "model/quantize_on_load.h"
#include "model/tensor_table.h"

namespace octavo {

namespace {

nb::object to_python(const GgufValue& value);

// Text where the bytes are valid UTF-8, else bytes: vocabularies hold both.
nb::object string_to_python(std::string_view s) {
  PyObject* text = PyUnicode_DecodeUTF8(s.data(), static_cast<Py_ssize_t>(s.size()), "strict");
  if (text) return nb::steal(text);
  PyErr_Clear();
  return nb::bytes(s.data(), s.size());
}

nb::list array_to_python(const GgufArray& array) {
  nb::list out;
  for (size_t i = 0; i < array.size; ++i) out.append(to_python(array.at(i)));
  return out;
}

nb::object to_python(const GgufValue& value) {
  if (const auto* v = std::get_if<bool>(&value)) return nb::bool_(*v);
  if (const auto* v = std::get_if<uint64_t>(&value)) return nb::int_(*v);
  if (const auto* v = std::get_if<int64_t>(&value)) return nb::int_(*v);
  if (const auto* v = std::get_if<double>(&value)) return nb::float_(*v);
  if (const auto* v = std::get_if<std::string_view>(&value)) return string_to_python(*v);
  return array_to_python(*std::get<std::shared_ptr<const GgufArray>>(value));
}

nb::dict gguf_metadata(const GgufFile& gguf) {
  nb::dict out;
  for (const auto& [key, value] : gguf.metadata()) out[key.c_str()] = to_python(value);
  return out;
}

nb::list gguf_tensors(const GgufFile& gguf) {
  nb::list out;
  for (const GgufTensor& t : gguf.tensors()) {
    const std::string format = t.type->format ? weight_format_info(*t.type->format).name : t.type->name;
    out.append(nb::make_tuple(t.name, nb::tuple(nb::cast(t.shape)), format, t.bytes));
  }
  return out;
}

WeightFormat dense_format(const std::string& name, nb::dlpack::dtype dtype) {
  if (dtype.lanes == 1) {
    const auto code = static_cast<nb::dlpack::dtype_code>(dtype.code);
    if (code == nb::dlpack::dtype_code::Float && dtype.bits == 32) return WeightFormat::kF32;
    if (code == nb::dlpack::dtype_code::Float && dtype.bits == 16) return WeightFormat::kF16;
    if (code == nb::dlpack::dtype_code::Bfloat && dtype.bits == 16) return WeightFormat::kBF16;
  }
  throw Error(ErrorCode::kUnsupported, name, cat("tensor ", name, " must be float32, float16 or bfloat16"));
}

using AnyTensor = nb::ndarray<nb::ro>;

StoredTensor borrow_tensor(const std::string& name, nb::handle object) {
  if (nb::hasattr(object, "requires_grad") && nb::cast<bool>(object.attr("requires_grad"))) {
    throw Error(ErrorCode::kInvalidArgument, name, cat("tensor ", name, " requires grad: pass tensor.detach()"));
  }
  AnyTensor tensor;
  if (!nb::try_cast(object, tensor)) {
    throw Error(ErrorCode::kInvalidArgument, name,
                cat("tensor ", name, " is not a tensor that can be shared without a copy (DLPack or buffer protocol)"));
  }
  if (tensor.device_type() != nb::device::cpu::value) {
    throw Error(ErrorCode::kInvalidArgument, name, cat("tensor ", name, " must be on the CPU"));
  }
  StoredTensor stored;
  stored.format = dense_format(name, tensor.dtype());
  int64_t expected = 1;
  for (size_t d = tensor.ndim(); d-- > 0;) {
    const auto size = static_cast<int64_t>(tensor.shape(d));
    if (size != 1 && tensor.stride(d) != expected) {
      throw Error(ErrorCode::kInvalidArgument, name,
                  cat("tensor ", name, " must be contiguous: dimension ", d, " has stride ", tensor.stride(d), ", not ",
                      expected));
    }
    expected *= size;
    stored.info.shape.insert(stored.info.shape.begin(), size);
  }
  stored.info.name = name;
  stored.info.format = weight_format_info(*stored.format).name;
  stored.info.bytes = tensor.nbytes();
  stored.data = static_cast<const std::byte*>(tensor.data());
  if (reinterpret_cast<uintptr_t>(stored.data) % tensor.itemsize() != 0) {
    throw Error(ErrorCode::kInvalidArgument, name,
                cat("tensor ", name, " must be aligned to its ", tensor.itemsize(), " bytes per element"));
  }
  // Whoever drops the last reference may be a thread without the interpreter's lock, and torch may need it to free.
  stored.owner = std::shared_ptr<const void>(new AnyTensor(std::move(tensor)), [](const AnyTensor* held) {
    nb::gil_scoped_acquire gil;
    delete held;
  });
  return stored;
}

std::unique_ptr<WeightFiles> weights_from_tensors(nb::dict tensors) {
  auto table = std::make_unique<TensorTable>();
  for (auto [key, value] : tensors) table->add(borrow_tensor(nb::cast<std::string>(key), value));
  return table;
}

using NameMap = std::map<std::string, std::string>;
using RecordTuple = std::tuple<std::string, std::string, std::vector<int64_t>, uint64_t, uint64_t>;
using FileTuple = std::tuple<std::string, uint64_t, std::vector<RecordTuple>>;

std::unique_ptr<WeightFiles> weights_from_safetensors(const std::vector<FileTuple>& files,
                                                      const std::optional<CheckpointQuantization>& quantization) {
  std::vector<SafetensorsFile> described;
  for (const auto& [path, data_offset, records] : files) {
    SafetensorsFile& file = described.emplace_back(SafetensorsFile{path, data_offset, {}});
    for (const auto& [name, dtype, shape, begin, end] : records)
      file.tensors.push_back({name, dtype, shape, begin, end});
  }
  auto table = open_safetensors_weights(described);
  if (quantization) return open_quantized_weights(std::move(table), *quantization);
  return table;
}

nb::list weight_infos(const WeightFiles& files) {
  nb::list out;
  for (const std::string& name : files.names()) {
    const WeightInfo info = files.info(name);
    out.append(nb::make_tuple(info.name, nb::tuple(nb::cast(info.shape)), info.format, info.bytes));
  }
  return out;
}

nb::ndarray<nb::numpy, float, nb::ndim<1>> read_vector(const WeightFiles& files, const std::string& name) {
  const std::vector<int64_t> shape = files.info(name).shape;
  if (shape.size() != 1) {
    throw Error(ErrorCode::kInvalidArgument, name,
                cat("tensor ", name, " has shape ", shape_text(shape), ", not one dimension"));
  }
  auto values = std::make_unique<std::vector<float>>(to_f32(files.matrix(name, static_cast<int>(shape[0]), 1)));
  float* data = values->data();
  const size_t size = values->size();
  nb::capsule owner(values.release(), [](void* p) noexcept { delete static_cast<std::vector<float>*>(p); });
  return {data, {size}, owner};
}

}  // namespace

void bind_model(nb::module_& m) {
  nb::class_<GgufFile>(m, "GgufFile", "A GGUF file: header parsed and checked, tensors mapped.")
      .def(nb::init<const std::string&>(), nb::arg("path"), nb::call_guard<nb::gil_scoped_release>())
      .def_prop_ro("version", &GgufFile::version)
      .def("metadata", &gguf_metadata, "All metadata: str, int, float, bool and lists; bytes where text is not UTF-8.")
      .def("tensors", &gguf_tensors, "(name, shape outermost first, format, bytes) of every tensor, in file order.");
  nb::class_<CheckpointQuantization>(m, "CheckpointQuantization", "How the matrices of a checkpoint are quantized.")
      .def(nb::init<>())
      .def_rw("method", &CheckpointQuantization::method)
      .def_rw("bits", &CheckpointQuantization::bits)
      .def_rw("zero_less_one", &CheckpointQuantization::zero_less_one)
      .def_rw("block_rows", &CheckpointQuantization::block_rows)
      .def_rw("block_columns", &CheckpointQuantization::block_columns);
  nb::class_<WeightFiles>(m, "WeightFiles", "Named tensors of a checkpoint under Hugging Face's names.")
      .def_static("open_gguf", &open_gguf_weights, nb::arg("gguf"), nb::arg("names") = NameMap(),
                  nb::call_guard<nb::gil_scoped_release>(),
                  "names: GGUF's name to Hugging Face's, without the kind and with * for the layer.")
      .def_static(
          "open_gguf",
          [](const std::string& path, const NameMap& names) { return open_gguf_weights(GgufFile(path), names); },
          nb::arg("path"), nb::arg("names") = NameMap(), nb::call_guard<nb::gil_scoped_release>())
      .def_static("open_safetensors", &weights_from_safetensors, nb::arg("files"), nb::arg("quantization") = nb::none(),
                  "files: (path, offset of the data section, [(name, dtype, shape, begin, end)]) of every shard.")
      .def_static("from_tensors", &weights_from_tensors, nb::arg("tensors"),
                  "Tensors of the caller (torch, numpy or any DLPack producer on the CPU), kept alive, not copied.")
      .def_static("quantize_on_load", &quantize_on_load, nb::arg("weights"), nb::arg("quantization"),
                  "The same tensors, of which dense matrices are quantized while they are packed: \"q8\" or \"q4\".")
      .def("names", &WeightFiles::names)
      .def("__contains__", &WeightFiles::has, nb::arg("name"))
      .def("tensors", &weight_infos, "(name, shape, format, bytes) of every tensor, by name.")
      .def("read_vector", &read_vector, nb::arg("name"), "A dense vector (a norm, a bias), copied as float32.")
      .def_prop_ro("file_bytes", &WeightFiles::file_bytes, "Bytes of all tensors as they lie in the files.");
}

}  // namespace octavo
