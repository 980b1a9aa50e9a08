#include <algorithm>

#include "backend/cuda/kernels/copy_blocks.cuh"
#include "backend/cuda/launches.h"

namespace octavo::cuda {

void copy_blocks(const Launch& on, const CopyBlocksParams& p) {
  if (p.num_copies == 0) return;
  const int element = static_cast<int>(dtype_size(p.cache.dtype));
  // A block holds at least eight slots, so the elements of a head are whole units.
  const int units = p.cache.block_size * std::max(p.k_dim, p.v_dim) * element / 16;
  const int threads = units + (has_kv_scales(p.cache.dtype) ? p.cache.block_size : 0);
  launch(copy_slots, dim3((threads + kCopyThreads - 1) / kCopyThreads, p.kv_heads, 2), kCopyThreads, 0, on.stream, p,
         element);
}

}  // namespace octavo::cuda
