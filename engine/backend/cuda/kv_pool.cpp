#include "backend/cuda/kv_pool.h"

#include <algorithm>

#include "backend/cuda/memory.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo::cuda {
namespace {

constexpr DType kTypes[] = {DType::kF16, DType::kBF16, DType::kF8E4M3, DType::kI8};

size_t side_bytes(const KvGroup& group, int block_size, int dim) {
  return group.kv_heads * kv_head_bytes(group.dtype, block_size, dim);
}

class GpuKvPool final : public KvPool {
 public:
  GpuKvPool(const KvGroup& group, int block_size, int num_blocks)
      : k_bytes_(side_bytes(group, block_size, group.k_dim)),
        v_bytes_(side_bytes(group, block_size, group.v_dim)),
        dtype_(group.dtype),
        block_size_(block_size),
        num_blocks_(num_blocks),
        memory_(kv_block_bytes(group, block_size) * num_blocks) {}

  KvLayer layer(int index) const override {
    const auto blocks = static_cast<size_t>(num_blocks_);
    std::byte* k = memory_.data() + (k_bytes_ + v_bytes_) * blocks * index;
    return {k, k + k_bytes_ * blocks, k_bytes_, v_bytes_, dtype_, block_size_, num_blocks_};
  }
  size_t bytes() const override { return memory_.size(); }

 private:
  size_t k_bytes_;
  size_t v_bytes_;
  DType dtype_;
  int block_size_;
  int num_blocks_;
  GpuMemory memory_;
};

}  // namespace

size_t kv_block_bytes(const KvGroup& group, int block_size) {
  return group.layers.size() *
         (side_bytes(group, block_size, group.k_dim) + side_bytes(group, block_size, group.v_dim));
}

std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks) {
  if (std::ranges::find(kTypes, group.dtype) == std::end(kTypes)) {
    throw Error(ErrorCode::kUnsupported, "kv_cache_dtype",
                cat("on a GPU the KV cache holds f16, bf16, fp8 or int8, not ", dtype_name(group.dtype)));
  }
  return std::make_unique<GpuKvPool>(group, block_size, num_blocks);
}

}  // namespace octavo::cuda
