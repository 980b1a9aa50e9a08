#include "backend/cpu/rope.h"

#include <cstring>

#include "backend/cpu/kv_element.h"

namespace octavo::cpu {
namespace {

void rotate(float* x, const float* cos_sin, int rotary_dim) {
  const int half = rotary_dim / 2;
  for (int i = 0; i < half; ++i) {
    const float c = cos_sin[i], s = cos_sin[half + i];
    const float a = x[i], b = x[half + i];
    x[i] = a * c - b * s;
    x[half + i] = b * c + a * s;
  }
}

}  // namespace

void rope_write(CpuQueue& queue, const Kernels&, const RopeWriteParams& p) {
  queue.pool().run(p.num_tokens, [&](int t, int) {
    float* q = p.q + t * p.ldq;
    float* k = p.k + t * p.ldk;
    const float* v = p.v + t * p.ldv;
    if (p.rope) {
      const float* cos_sin = p.rope + static_cast<int64_t>(p.positions[t]) * p.rotary_dim;
      for (int h = 0; h < p.heads; ++h) rotate(q + h * p.k_dim, cos_sin, p.rotary_dim);
      for (int h = 0; h < p.kv_heads; ++h) rotate(k + h * p.k_dim, cos_sin, p.rotary_dim);
    }
    const int slot = p.slots[t];
    if (slot < 0) return;
    const KvLayer& cache = p.cache;
    const int size = cache.block_size, block = slot / size, offset = slot % size;
    std::byte* kb = cache.k + block * cache.k_stride;
    std::byte* vb = cache.v + block * cache.v_stride;
    for (int i = 0; i < p.kv_heads * p.k_dim; ++i)
      store_kv(cache.dtype, kb, static_cast<size_t>(i) * size + offset, k[i]);
    for (int h = 0; h < p.kv_heads; ++h) {
      for (int d = 0; d < p.v_dim; ++d) {
        store_kv(cache.dtype, vb, (static_cast<size_t>(h) * size + offset) * p.v_dim + d, v[h * p.v_dim + d]);
      }
    }
  });
}

void copy_blocks(CpuQueue& queue, const CopyBlocksParams& p) {
  const KvLayer& cache = p.cache;
  const size_t element = dtype_size(cache.dtype), size = cache.block_size;
  // One copy after the other: a later copy may read what an earlier one wrote.
  for (int c = 0; c < p.num_copies; ++c) {
    const auto [src, dst, slots] = p.copies[c];
    std::byte* k_to = cache.k + dst * cache.k_stride;
    const std::byte* k_from = cache.k + src * cache.k_stride;
    for (int i = 0; i < p.kv_heads * p.k_dim; ++i)
      std::memcpy(k_to + i * size * element, k_from + i * size * element, slots * element);
    std::byte* v_to = cache.v + dst * cache.v_stride;
    const std::byte* v_from = cache.v + src * cache.v_stride;
    const size_t head = size * p.v_dim * element;
    for (int h = 0; h < p.kv_heads; ++h) std::memcpy(v_to + h * head, v_from + h * head, slots * p.v_dim * element);
  }
}

}  // namespace octavo::cpu
