#pragma once
#include <memory>

#include "ops/backend.h"
#include "tensor/buffer.h"

namespace octavo::cpu {

size_t kv_block_bytes(const KvGroup& group, int block_size);  // one block, all layers together
std::unique_ptr<KvPool> make_kv_pool(const KvGroup& group, int block_size, int num_blocks);

}  // namespace octavo::cpu
