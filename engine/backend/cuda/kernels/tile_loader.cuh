#pragma once
// Keys and values of one KV head on their way from the cache to shared memory, a partition at a time.
#include "backend/cuda/kernels/attention_args.h"
#include "backend/cuda/kernels/attention_work.cuh"
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
  // partitions later is read. Where nothing is seen stands the nearest block that is, so that every address is one.
  __device__ void find_blocks(int partition) {
    const int start = partition * kAttentionPartition, i = static_cast<int>(threadIdx.x);
    const int lo = max(seen_lo_, start), hi = min(seen_hi_, start + kAttentionPartition);
    if (i < kAttentionPartition >> shift_)
      block_ids(partition)[i] = block_table_[min(max((start >> shift_) + i, lo >> shift_), (hi - 1) >> shift_)];
  }

  // One group of asynchronous copies each. Of keys that no query sees nothing is written: their scores are masked.
  // Values are multiplied by a weight of 0, so they become zeros, as far as steps of 32 keys reach.
  __device__ __forceinline__ void load_keys(int partition) {
    load<false>(partition, keys_, static_cast<uint32_t>(p_.cache.k_stride), p_.k_dim, layout_.keys, layout_.key_stride);
    if constexpr (Cache::kScaled) load_scales(partition, keys_, p_.cache.k_stride, p_.k_dim, layout_.key_scales);
    // The largest value scale in sight is wanted before the values are, and the scales with them.
    if constexpr (Cache::kScaled)
      load_scales(partition, values_, p_.cache.v_stride, p_.v_dim,
                  layout_.value_scales + partition % 2 * kAttentionPartition * static_cast<int>(sizeof(float)));
    cp_async_commit();
  }
  __device__ __forceinline__ void load_values(int partition) {
    load<true>(partition, values_, static_cast<uint32_t>(p_.cache.v_stride), p_.v_dim, layout_.values,
               layout_.value_stride);
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

  template <bool kZeros>
  __device__ __forceinline__ void load(int partition, const std::byte* head, uint32_t stride, int dim, int offset,
                                       int row_stride) {
    const int start = partition * kAttentionPartition;
    const int lo = max(seen_lo_ - start, 0), hi = min(seen_hi_ - start, kAttentionPartition);
    const int begin = kZeros ? lo / 32 * 32 : lo, end = kZeros ? (hi + 31) / 32 * 32 : hi;
    // A thread copies the same 16 bytes of every key_step-th row; where a row is no share of the threads, some idle.
    const int row_bytes = dim * Cache::kBytes;
    const auto chunks = static_cast<unsigned>(row_bytes / 16), first = threadIdx.x / chunks;
    const auto key_step = static_cast<int>(kAttentionThreads / chunks);
    const int chunk = 16 * static_cast<int>(threadIdx.x % chunks), slots = p_.cache.block_size - 1;
    int key = begin + static_cast<int>(first);
    const int own_end = static_cast<int>(first) < key_step ? end : 0;
    head += chunk;
    std::byte* to = shared_ + offset + chunk;
    const int32_t* ids = block_ids(partition);
    // The addresses of several rounds first: they wait for the block table together.
    constexpr int kAtOnce = 4;
    for (int round = begin; round < end; round += kAtOnce * key_step) {
      const std::byte* from[kAtOnce];
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int there = min(key + i * key_step, kAttentionPartition - 1);
        const auto block = static_cast<uint32_t>(ids[there >> shift_]);
        from[i] = head + (static_cast<uint64_t>(stride) * block + static_cast<uint32_t>((there & slots) * row_bytes));
      }
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        cp_async_16(to + key * row_stride, from[i], !kZeros || (key >= lo && key < hi), key < own_end);
        key += key_step;
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
