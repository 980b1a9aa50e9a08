#include "backend/cpu/rope.h"

#include <algorithm>
#include <cstring>

namespace octavo::cpu {
namespace {

// Tokens of one tile: neighbours usually share a block, whose cache lines one core should write.
constexpr int kTokensPerTile = 16;

void norm_heads(const RowKernels& kernels, const RopeWriteParams& p, float* x, int heads, const float* weight) {
  if (!weight) return;
  const int runs = p.norm_heads_together ? 1 : heads;
  const int width = heads * p.k_dim / runs;
  for (int i = 0; i < runs; ++i) kernels.rms_norm(x + i * width, weight, p.norm_eps, width, x + i * width);
}

constexpr size_t kLine = 64;

// Asks for a token's q, k and v: other cores wrote most of them.
void prefetch_input(const RopeWriteParams& p, int t) {
  auto fetch = [](const float* x, int width) {
    const auto* bytes = reinterpret_cast<const std::byte*>(x);
    for (size_t i = 0; i < width * sizeof(float); i += kLine) __builtin_prefetch(bytes + i, 1);
  };
  fetch(p.q + t * p.ldq, p.heads * p.k_dim);
  fetch(p.k + t * p.ldk, p.kv_heads * p.k_dim);
  fetch(p.v + t * p.ldv, p.kv_heads * p.v_dim);
}

// Asks for the cache lines that the write of token t touches: one token reaches every line of its block's keys.
void prefetch_slot(const RopeWriteParams& p, int t) {
  const KvLayer& cache = p.cache;
  const size_t size = cache.block_size, element = dtype_size(cache.dtype);
  if (p.slots[t] < 0 || (t > 0 && p.slots[t - 1] >= 0 && p.slots[t - 1] / size == p.slots[t] / size)) return;
  const size_t block = p.slots[t] / size, offset = p.slots[t] % size;
  const std::byte* keys = cache.k + block * cache.k_stride;
  const size_t key_bytes = p.kv_heads * p.k_dim * size * element, value_bytes = p.v_dim * element;
  for (size_t i = 0; i < key_bytes; i += kLine) __builtin_prefetch(keys + i, 1);
  const std::byte* values = cache.v + block * cache.v_stride + offset * value_bytes;
  for (int h = 0; h < p.kv_heads; ++h, values += size * value_bytes) {
    for (size_t i = 0; i < value_bytes; i += kLine) __builtin_prefetch(values + i, 1);
  }
}

void rope_write_token(const Kernels& all, const RopeWriteParams& p, int t) {
  const KvKernels& kernels = all.kv;
  float* q = p.q + t * p.ldq;
  float* k = p.k + t * p.ldk;
  const float* v = p.v + t * p.ldv;
  norm_heads(all.rows, p, q, p.heads, p.q_norm);
  norm_heads(all.rows, p, k, p.kv_heads, p.k_norm);
  if (p.rope) {
    const float* cos_sin = p.rope + static_cast<int64_t>(p.positions[t]) * p.rotary_dim;
    for (int h = 0; h < p.heads; ++h) kernels.rotate(q + h * p.k_dim, cos_sin, p.rotary_dim);
    for (int h = 0; h < p.kv_heads; ++h) kernels.rotate(k + h * p.k_dim, cos_sin, p.rotary_dim);
  }
  if (p.slots[t] < 0) return;
  const KvLayer& cache = p.cache;
  const size_t size = cache.block_size, element = dtype_size(cache.dtype);
  const size_t block = p.slots[t] / size, offset = p.slots[t] % size;
  std::byte* keys = cache.k + block * cache.k_stride;
  std::byte* values = cache.v + block * cache.v_stride;
  if (has_kv_scales(cache.dtype)) {
    const auto store = kernels.store_scaled[kv_type_index(cache.dtype) - kv_type_index(DType::kI8)];
    for (int h = 0; h < p.kv_heads; ++h) {
      std::byte* key = keys + h * kv_head_bytes(cache.dtype, cache.block_size, p.k_dim);
      std::byte* value = values + h * kv_head_bytes(cache.dtype, cache.block_size, p.v_dim);
      store(k + h * p.k_dim, p.k_dim, key + offset, size, reinterpret_cast<float*>(key + size * p.k_dim) + offset);
      store(v + h * p.v_dim, p.v_dim, value + offset * p.v_dim, 1,
            reinterpret_cast<float*>(value + size * p.v_dim) + offset);
    }
    return;
  }
  const auto store = kernels.store[kv_type_index(cache.dtype)];
  // K: [kv_heads, k_dim, block_size]; V: [kv_heads, block_size, v_dim]
  store(k, p.kv_heads * p.k_dim, keys + offset * element, size);
  for (int h = 0; h < p.kv_heads; ++h) {
    store(v + h * p.v_dim, p.v_dim, values + (h * size + offset) * p.v_dim * element, 1);
  }
}

}  // namespace

void rope_write(CpuQueue& queue, const Kernels& kernels, const RopeWriteParams& p) {
  queue.pool().run((p.num_tokens + kTokensPerTile - 1) / kTokensPerTile, [&](int tile, int) {
    const int end = std::min(p.num_tokens, (tile + 1) * kTokensPerTile);
    const int first = tile * kTokensPerTile;
    auto prefetch = [&p](int t) {
      prefetch_input(p, t);
      prefetch_slot(p, t);
    };
    prefetch(first);
    for (int t = first; t < end; ++t) {
      if (t + 1 < end) prefetch(t + 1);
      rope_write_token(kernels, p, t);
    }
  });
}

void copy_blocks(CpuQueue& queue, const CopyBlocksParams& p) {
  const KvLayer& cache = p.cache;
  const size_t element = dtype_size(cache.dtype), size = cache.block_size;
  const size_t k_head = kv_head_bytes(cache.dtype, cache.block_size, p.k_dim);
  const size_t v_head = kv_head_bytes(cache.dtype, cache.block_size, p.v_dim);
  // Split by head, so that in each head a later copy may read what an earlier one wrote.
  queue.pool().run(p.num_copies ? p.kv_heads : 0, [&](int head, int) {
    for (int c = 0; c < p.num_copies; ++c) {
      const auto [src, dst, slots] = p.copies[c];
      if (src == dst) continue;
      std::byte* k_to = cache.k + dst * cache.k_stride + head * k_head;
      const std::byte* k_from = cache.k + src * cache.k_stride + head * k_head;
      for (int d = 0; d < p.k_dim; ++d) {
        std::memcpy(k_to + d * size * element, k_from + d * size * element, slots * element);
      }
      std::byte* v_to = cache.v + dst * cache.v_stride + head * v_head;
      const std::byte* v_from = cache.v + src * cache.v_stride + head * v_head;
      std::memcpy(v_to, v_from, slots * p.v_dim * element);
      if (!has_kv_scales(cache.dtype)) continue;
      std::memcpy(k_to + p.k_dim * size, k_from + p.k_dim * size, slots * sizeof(float));
      std::memcpy(v_to + p.v_dim * size, v_from + p.v_dim * size, slots * sizeof(float));
    }
  });
}

}  // namespace octavo::cpu
