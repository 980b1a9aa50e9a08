#include "backend/cuda/kernels/rope_write.cuh"
#include "backend/cuda/launches.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

[[noreturn]] void refuse(const char* name, const std::string& message) {
  throw Error(ErrorCode::kUnsupported, name, message);
}

void check(const char* name, int dim, const void* rows, int64_t stride) {
  if (dim % 4 || dim > kMaxRopeDim)
    refuse(name,
           cat("rope_write on CUDA takes heads of a multiple of 4 up to ", kMaxRopeDim, ", ", name, " have ", dim));
  if (reinterpret_cast<uintptr_t>(rows) % 16 || stride % 4)
    refuse(name, cat("rope_write on CUDA takes rows of ", name, " that begin at multiples of 16 bytes"));
}

template <class Store>
void write(const Launch& on, const RopeWriteParams& p) {
  const bool together = p.norm_heads_together && (p.q_norm || p.k_norm);
  const int heads = p.heads + 2 * p.kv_heads;
  const dim3 grid(p.num_tokens, together ? 1 : (heads + kRopeWarps - 1) / kRopeWarps);
  const size_t shared = kRopeWarps * p.k_dim * sizeof(float);
  launch(together ? write_rotated<Store, true> : write_rotated<Store, false>, grid, kRopeThreads, shared, on.stream, p);
}

}  // namespace

void rope_write(const Launch& on, const RopeWriteParams& p) {
  if (p.num_tokens == 0) return;
  check("q", p.k_dim, p.q, p.ldq);
  check("k", p.k_dim, p.k, p.ldk);
  check("v", p.v_dim, p.v, p.ldv);
  if (p.cache.k == nullptr) return write<StoreF16>(on, p);  // nothing is stored
  switch (p.cache.dtype) {
    case DType::kF16:
      return write<StoreF16>(on, p);
    case DType::kBF16:
      return write<StoreBf16>(on, p);
    case DType::kI8:
      return write<StoreInt8>(on, p);
    case DType::kF8E4M3:
      return write<StoreF8>(on, p);
    default:
      refuse("kv_cache_dtype", cat("on CUDA the cache holds f16, bf16, int8 or fp8, not ", dtype_name(p.cache.dtype)));
  }
}

}  // namespace octavo::cuda
