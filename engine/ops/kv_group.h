#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "tensor/dtype.h"

namespace octavo {

enum class Retain : uint8_t { kFull, kWindow, kState };

// Layers whose cache is paged together: one block table per sequence serves all of them.
struct KvGroup {
  std::vector<int> layers;  // model layers, in order; the position in this list is the layer's place in the pool
  int kv_heads = 0;
  int k_dim = 0;
  int v_dim = 0;
  DType dtype = DType::kF16;
  Retain retain = Retain::kFull;
  int window = 0;          // kWindow: positions kept
  size_t state_bytes = 0;  // kState: bytes per block
};

// A cache of 8 bits holds codes, and one scale for each slot and KV head that is written once with the token.
constexpr bool has_kv_scales(DType dtype) { return dtype == DType::kI8 || dtype == DType::kF8E4M3; }
// K or V of one KV head in a block: the elements, then the f32 scales of the slots. Where there are scales, a kF8E4M3
// element stands for its value times 2^-8.
constexpr size_t kv_head_bytes(DType dtype, int block_size, int dim) {
  const size_t elements = static_cast<size_t>(block_size) * dim * dtype_size(dtype);
  return elements + (has_kv_scales(dtype) ? block_size * sizeof(float) : 0);
}

// One layer's part of the pool. The layout inside a block is the backend's own; on the CPU
// K is [kv_heads, k_dim, block_size] (one dimension of all slots is one vector) and V is [kv_heads, block_size, v_dim].
struct KvLayer {
  std::byte* k = nullptr;  // block b at k + b * k_stride
  std::byte* v = nullptr;
  size_t k_stride = 0;  // bytes
  size_t v_stride = 0;
  DType dtype = DType::kF16;
  int block_size = 16;
  int num_blocks = 0;
};

}  // namespace octavo
