#pragma once
// Copies of the first slots of blocks, K and V of one layer.
#include <cstdint>

#include "backend/cuda/platform.h"
#include "ops/params.h"

namespace octavo::cuda {

inline constexpr int kCopyThreads = 128;

// Grid: (units of a head / kCopyThreads, KV heads, K and V). A thread moves the same bytes of every copy, in their
// order, so that a later copy may read what an earlier one wrote. A unit is 16 bytes of elements, or a scale.
__global__ void __launch_bounds__(kCopyThreads) copy_slots(CopyBlocksParams p, int element) {
  const bool keys = blockIdx.z == 0;
  const int dim = keys ? p.k_dim : p.v_dim, size = p.cache.block_size;
  const int units = size * dim * element / 16, scales = has_kv_scales(p.cache.dtype) ? size : 0;
  const int unit = static_cast<int>(blockIdx.x * kCopyThreads + threadIdx.x);
  if (unit >= units + scales) return;
  const size_t stride = keys ? p.cache.k_stride : p.cache.v_stride;
  const size_t head = static_cast<size_t>(units) * 16 + scales * sizeof(float);
  std::byte* cache = (keys ? p.cache.k : p.cache.v) + blockIdx.y * head;
  const int slot_bytes = dim * element;
  for (int c = 0; c < p.num_copies; ++c) {
    const SlotCopy copy = p.copies[c];
    const std::byte* from = cache + static_cast<size_t>(copy.src) * stride;
    std::byte* to = cache + static_cast<size_t>(copy.dst) * stride;
    if (copy.src == copy.dst) continue;
    if (unit >= units) {
      const int slot = unit - units;
      if (slot < copy.slots)
        reinterpret_cast<float*>(to + 16 * units)[slot] = reinterpret_cast<const float*>(from + 16 * units)[slot];
      continue;
    }
    const int left = copy.slots * slot_bytes - 16 * unit;
    if (left >= 16) {
      reinterpret_cast<uint4*>(to)[unit] = reinterpret_cast<const uint4*>(from)[unit];
    } else if (left > 0) {  // heads that are no multiple of 16 bytes end inside a unit
      for (int i = 0; i < left; ++i) to[16 * unit + i] = from[16 * unit + i];
    }
  }
}

}  // namespace octavo::cuda
