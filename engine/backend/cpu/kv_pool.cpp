#include "backend/cpu/kv_pool.h"

#include <optional>

#include "backend/cpu/page_warmer.h"

namespace octavo::cpu {
namespace {

constexpr size_t kWorthWarming = size_t{16} << 20;

size_t side_bytes(const KvGroup& group, int block_size, int dim) {
  return group.kv_heads * kv_head_bytes(group.dtype, block_size, dim);
}

// Block after block; in a block layer after layer, K before V. Pages are touched on first use or a little ahead of it,
// so resident memory grows with the highest block in use: layers in regions of their own would each touch a huge page
// for the first token.
class CpuKvPool final : public KvPool {
 public:
  CpuKvPool(const KvGroup& group, int block_size, int num_blocks)
      : k_bytes_(side_bytes(group, block_size, group.k_dim)),
        v_bytes_(side_bytes(group, block_size, group.v_dim)),
        block_bytes_(kv_block_bytes(group, block_size)),
        dtype_(group.dtype),
        block_size_(block_size),
        num_blocks_(num_blocks),
        memory_(block_bytes_ * num_blocks) {
    if (memory_.size() >= kWorthWarming) warmer_.emplace(memory_.data(), memory_.size());
  }

  KvLayer layer(int index) const override {
    std::byte* k = memory_.data() + (k_bytes_ + v_bytes_) * index;
    return {k, k + k_bytes_, block_bytes_, block_bytes_, dtype_, block_size_, num_blocks_};
  }
  size_t bytes() const override { return memory_.size(); }
  void begin_writes(int highest) noexcept override {
    if (warmer_) warmer_->begin_use(block_bytes_ * static_cast<size_t>(highest / block_size_ + 1));
  }
  void end_writes() noexcept override {
    if (warmer_) warmer_->end_use();
  }

 private:
  size_t k_bytes_;
  size_t v_bytes_;
  size_t block_bytes_;
  DType dtype_;
  int block_size_;
  int num_blocks_;
  Buffer memory_;
  std::optional<PageWarmer> warmer_;
};

}  // namespace

size_t kv_block_bytes(const KvGroup& group, int block_size) {
  return group.layers.size() *
         (side_bytes(group, block_size, group.k_dim) + side_bytes(group, block_size, group.v_dim));
}

std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks) {
  return std::make_unique<CpuKvPool>(group, block_size, num_blocks);
}

}  // namespace octavo::cpu
