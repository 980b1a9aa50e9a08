#pragma once
#include <memory>

#include "ops/backend.h"

namespace octavo::cuda {

size_t kv_block_bytes(const KvGroup& group, int block_size);  // one block, all layers together

// Layer after layer, in each all blocks of K, then all of V; in a block both are [kv_heads, block_size, dim].
std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks);

}  // namespace octavo::cuda
