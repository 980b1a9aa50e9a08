#include "weight_view.h"

#include <nanobind/ndarray.h>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

using View = nb::ndarray<nb::ro, nb::array_api>;

nb::dlpack::dtype dlpack_type(DType dtype) {
  if (dtype == DType::kBF16) return {static_cast<uint8_t>(nb::dlpack::dtype_code::Bfloat), 16, 1};
  return {static_cast<uint8_t>(nb::dlpack::dtype_code::Float), static_cast<uint8_t>(8 * dtype_size(dtype)), 1};
}

}  // namespace

nb::object weight_view(const Decoder& decoder, const std::string& name, nb::handle owner) {
  const WeightPlace& place = decoder.weights().find(name);
  if (!decoder.backend().host_memory()) {
    throw Error(ErrorCode::kUnsupported, name,
                cat("tensor ", name, " lies on a GPU and cannot be viewed from the host"));
  }
  if (place.vector) {
    return nb::cast(View(place.vector, {static_cast<size_t>(place.rows)}, owner, {}, dlpack_type(DType::kF32)));
  }
  const auto dense = place.matrix->dense_panels(place.first_row, place.rows);
  if (!dense) {
    throw Error(ErrorCode::kUnsupported, name,
                cat("tensor ", name, " is packed as ", place.matrix->format(),
                    " and has no view; only dense matrices (f32, f16, bf16) on whole panels have one"));
  }
  const auto half = static_cast<size_t>(dense->half_rows);
  const auto panel_stride = static_cast<int64_t>(dense->panel_bytes / dtype_size(dense->dtype));
  return nb::cast(
      View(dense->data, {static_cast<size_t>(dense->panels), 2, half, static_cast<size_t>(place.matrix->k())}, owner,
           {panel_stride, dense->half_stride, dense->row_stride, 2 * dense->half_rows}, dlpack_type(dense->dtype)));
}

}  // namespace octavo
