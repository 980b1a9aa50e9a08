#include "cache_arg.h"

#include <array>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {
namespace {

constexpr std::array kHostTypes{DType::kF32, DType::kF16, DType::kBF16};
constexpr std::array kGpuTypes{DType::kF16, DType::kBF16};

[[noreturn]] void refuse(const char* name, const std::string& message) {
  throw Error(ErrorCode::kInvalidArgument, name, message);
}

std::span<const DType> types(const TensorPlace& place) {
  if (place.kind == TensorPlace::kGpu) return kGpuTypes;
  return kHostTypes;
}

}  // namespace

CacheArg::CacheArg(const TensorPlace& place, nb::handle k_cache, nb::handle v_cache)
    : k(write_tensor(k_cache, "k_cache", types(place), 4, place)),
      v(write_tensor(v_cache, "v_cache", types(place), 4, place)),
      kv_heads(static_cast<int>(k.shape(1))),
      v_dim(static_cast<int>(v.shape(3))) {
  const bool slots_last = place.kind == TensorPlace::kHost;
  k_dim = static_cast<int>(k.shape(slots_last ? 2 : 3));
  const int block_size = static_cast<int>(k.shape(slots_last ? 3 : 2));
  if (block_size != 8 && block_size != 16 && block_size != 32) {
    refuse("k_cache", cat("k_cache is [num_blocks, kv_heads, ", slots_last ? "k_dim, block_size" : "block_size, k_dim",
                          "] on \"", place.name(), "\" with block_size 8, 16 or 32, got ", block_size));
  }
  if (tensor_dtype(k) != tensor_dtype(v)) refuse("v_cache", "v_cache must have the dtype of k_cache");
  check_extent("v_cache", "num_blocks (dimension 0)", v.shape(0), k.shape(0));
  check_extent("v_cache", "kv_heads (dimension 1)", v.shape(1), kv_heads);
  check_extent("v_cache", "block_size (dimension 2)", v.shape(2), block_size);
  if (kv_heads == 0 || k_dim == 0) refuse("k_cache", "k_cache has an empty dimension");
  if (v_dim == 0) refuse("v_cache", "v_cache has an empty dimension");
  const DType dtype = tensor_dtype(k);
  const size_t head = dtype_size(dtype) * kv_heads * block_size;
  layer = {static_cast<std::byte*>(k.data()),
           static_cast<std::byte*>(v.data()),
           head * k_dim,
           head * v_dim,
           dtype,
           block_size,
           static_cast<int>(k.shape(0))};
}

}  // namespace octavo
