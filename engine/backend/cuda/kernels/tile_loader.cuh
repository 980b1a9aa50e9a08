#pragma once
// Keys and values of one KV head on their way from the cache to shared memory, a partition at a time.
#include "backend/cuda/kernels/attention_args.h"
#include "backend/cuda/mma.h"

namespace octavo::cuda {

template <class Cache>
class TileLoader {
 public:
  // seen: positions that any query of the tile sees.
  __device__ TileLoader(const AttentionParams& p, const int32_t* block_table, std::byte* shared,
                        const AttentionLayout& layout, int kv_head, int seen_lo, int seen_hi)
      : p_(p),
        block_table_(block_table),
        shared_(shared),
        layout_(layout),
        seen_lo_(seen_lo),
        seen_hi_(seen_hi),
        shift_(p.cache.block_size == 8    ? 3
               : p.cache.block_size == 16 ? 4
                                          : 5),
        keys_(p.cache.k + kv_head * head_bytes(p.k_dim)),
        values_(p.cache.v + kv_head * head_bytes(p.v_dim)) {}

  // Reads the partition's part of the block table; it may be used after the next barrier, until that of two
  // partitions later is read.
  __device__ void find_blocks(int partition) {
    const int start = partition * kAttentionPartition, blocks = kAttentionPartition >> shift_;
    const int i = static_cast<int>(threadIdx.x), position = start + (i << shift_);
    if (i < blocks && position < seen_hi_ && position + p_.cache.block_size > seen_lo_)
      block_ids(partition)[i] = block_table_[(start >> shift_) + i];
  }

  // One group of asynchronous copies each. Of keys that no query sees nothing is written: their scores are masked.
  // Values are multiplied by a weight of 0, so they become zeros, as far as steps of 32 keys reach.
  __device__ __forceinline__ void load_keys(int partition) {
    load(partition, keys_, p_.cache.k_stride, p_.k_dim, layout_.keys, layout_.key_stride, false);
    if constexpr (Cache::kScaled) load_scales(partition, keys_, p_.cache.k_stride, p_.k_dim, layout_.key_scales);
    // The largest value scale in sight is wanted before the values are, and the scales with them.
    if constexpr (Cache::kScaled)
      load_scales(partition, values_, p_.cache.v_stride, p_.v_dim,
                  layout_.value_scales + partition % 2 * kAttentionPartition * static_cast<int>(sizeof(float)));
    cp_async_commit();
  }
  __device__ __forceinline__ void load_values(int partition) {
    load(partition, values_, p_.cache.v_stride, p_.v_dim, layout_.values, layout_.value_stride, true);
    cp_async_commit();
  }

 private:
  __device__ size_t head_bytes(int dim) const {
    const size_t elements = static_cast<size_t>(p_.cache.block_size) * dim * Cache::kBytes;
    return elements + (Cache::kScaled ? p_.cache.block_size * sizeof(float) : 0);
  }
  __device__ int32_t* block_ids(int partition) const {
    return reinterpret_cast<int32_t*>(shared_ + layout_.block_ids) + partition % 2 * kMaxBlocksPerPartition;
  }

  __device__ __forceinline__ void load(int partition, const std::byte* head, size_t stride, int dim, int offset,
                                       int row_stride, bool zeros) {
    const int start = partition * kAttentionPartition;
    const int lo = max(seen_lo_ - start, 0), hi = min(seen_hi_ - start, kAttentionPartition);
    const int begin = zeros ? lo / 32 * 32 : lo, end = zeros ? (hi + 31) / 32 * 32 : hi;
    const int chunks = dim * Cache::kBytes / 16;
    const int key_step = kAttentionThreads / chunks, chunk_step = kAttentionThreads % chunks;
    const int32_t* ids = block_ids(partition);
    int key = begin + static_cast<int>(threadIdx.x) / chunks, chunk = static_cast<int>(threadIdx.x) % chunks;
    while (key < end) {
      const bool valid = key >= lo && key < hi;
      const std::byte* from = head;
      if (valid) {
        const size_t slot = key & (p_.cache.block_size - 1);
        from += ids[key >> shift_] * stride + slot * dim * Cache::kBytes + 16 * chunk;
      }
      cp_async_16(shared_ + offset + key * row_stride + 16 * chunk, from, valid);
      key += key_step;
      chunk += chunk_step;
      if (chunk >= chunks) {
        chunk -= chunks;
        ++key;
      }
    }
  }

  // Four scales at a time: a block is a multiple of eight slots.
  __device__ __forceinline__ void load_scales(int partition, const std::byte* head, size_t stride, int dim,
                                              int offset) {
    const int start = partition * kAttentionPartition, key = 4 * static_cast<int>(threadIdx.x);
    if (key >= min(seen_hi_ - start, kAttentionPartition) || key + 4 <= seen_lo_ - start) return;
    const size_t slot = key & (p_.cache.block_size - 1);
    const std::byte* from = head + block_ids(partition)[key >> shift_] * stride +
                            static_cast<size_t>(p_.cache.block_size) * dim + slot * sizeof(float);
    cp_async_16(shared_ + offset + key * static_cast<int>(sizeof(float)), from);
  }

  const AttentionParams& p_;
  const int32_t* block_table_;
  std::byte* shared_;
  const AttentionLayout& layout_;
  int seen_lo_, seen_hi_, shift_;
  const std::byte* keys_;  // of this KV head, in block 0
  const std::byte* values_;
};

}  // namespace octavo::cuda
