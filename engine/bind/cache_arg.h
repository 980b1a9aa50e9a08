#pragma once
#include "bind.h"
#include "ops/kv_group.h"
#include "tensor_arg.h"

namespace octavo {

// The caller's two cache tensors as one layer of a pool. Error(kInvalidArgument, name, ...) says what is wrong with
// them.
struct CacheArg {
  CacheArg(const TensorPlace& place, nb::handle k_cache, nb::handle v_cache);

  WriteTensor k;  // [num_blocks, kv_heads, k_dim, block_size], on a GPU [num_blocks, kv_heads, block_size, k_dim]
  WriteTensor v;  // [num_blocks, kv_heads, block_size, v_dim]
  int kv_heads, k_dim, v_dim;
  KvLayer layer;
};

}  // namespace octavo
