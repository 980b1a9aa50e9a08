#include "kv_view.h"

#include <nanobind/ndarray.h>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

using View = nb::ndarray<nb::ro, nb::array_api>;

nb::object block_view(const std::byte* data, size_t block_stride, const KvLayer& layer, size_t heads, size_t rows,
                      size_t columns, nb::handle owner) {
  const auto item = dtype_size(layer.dtype);
  const auto code = layer.dtype == DType::kBF16 ? nb::dlpack::dtype_code::Bfloat : nb::dlpack::dtype_code::Float;
  const nb::dlpack::dtype type{static_cast<uint8_t>(code), static_cast<uint8_t>(8 * item), 1};
  const auto row = static_cast<int64_t>(columns);
  return nb::cast(View(data, {static_cast<size_t>(layer.num_blocks), heads, rows, columns}, owner,
                       {static_cast<int64_t>(block_stride / item), static_cast<int64_t>(rows) * row, row, 1}, type));
}

}  // namespace

nb::tuple kv_view(const Engine& engine, int layer, nb::handle owner) {
  const ModelConfig& config = engine.config();
  if (layer < 0 || layer >= config.num_layers) {
    throw Error(ErrorCode::kInvalidArgument, "layer",
                cat("layer must be from 0 to ", config.num_layers - 1, ", got ", layer));
  }
  if (!engine.host().backend().host_memory()) {
    throw Error(ErrorCode::kUnsupported, "layer", "the cache of a GPU cannot be viewed from the host");
  }
  const Decoder::CachePlace& at = engine.host().decoder().cache_place(layer);
  const KvLayer place = engine.host().pools()[at.group]->layer(at.index);
  if (has_kv_scales(place.dtype)) {
    throw Error(
        ErrorCode::kUnsupported, "kv_cache_dtype",
        cat("a cache of ", dtype_name(place.dtype), " holds codes and scales: it cannot be viewed as a tensor"));
  }
  const auto heads = static_cast<size_t>(config.kv_heads);
  const auto dim = static_cast<size_t>(config.head_dim);
  const auto slots = static_cast<size_t>(place.block_size);
  return nb::make_tuple(block_view(place.k, place.k_stride, place, heads, dim, slots, owner),
                        block_view(place.v, place.v_stride, place, heads, slots, dim, owner));
}

}  // namespace octavo
