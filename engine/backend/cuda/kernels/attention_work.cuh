#pragma once
// Which queries a block works on. Tiles are numbered over the rows of a step, or over the members of its prefix groups;
// a block finds its own, as sizes are known on the device alone.
#include "backend/cuda/kernels/attention_args.h"
#include "backend/cuda/platform.h"

namespace octavo::cuda {

struct AttentionWork {
  int count = 0;                     // queries, 0: nothing to do
  int first_query = 0;               // of the tile, among those of one KV head of the row
  int row = 0;                       // the row, or that of the first query of the group's tile
  const int32_t* members = nullptr;  // of the group, from that row on
  int first = 0;                     // of the partitions that the whole row or group reads
  int last = 0;
  int prefix = 0;  // leading partitions that are the prefix group's, in a launch over rows
};

// The item that holds number `target` when item i has count(i); target becomes the number within it, -1: there is none.
// All lanes of a warp call it together and get the same answer.
template <class Count>
__device__ int find_item(int items, int& target, Count count) {
  const unsigned all = 0xffffffffu;
  const int lane = static_cast<int>(threadIdx.x) % 32;
  for (int base = 0; base < items; base += 32) {
    const int own = base + lane < items ? count(base + lane) : 0;
    int through = own;
    for (int d = 1; d < 32; d *= 2) {
      const int before = __shfl_up_sync(all, through, d);
      if (lane >= d) through += before;
    }
    const unsigned beyond = __ballot_sync(all, through > target);
    if (beyond) {
      const int found = __ffs(static_cast<int>(beyond)) - 1;
      target -= __shfl_sync(all, through - own, found);
      return base + found;
    }
    target -= __shfl_sync(all, through, 31);
  }
  return -1;
}

__device__ inline int ceil_div(int a, int b) { return (a + b - 1) / b; }

// Leading partitions that a prefix group computes for this row, 0: none. Every thread of the block calls it.
__device__ inline int shared_prefix(const AttentionParams& p, int row) {
  int partitions = 0;
  for (int g = 0; g < p.num_prefix_groups; ++g) {
    const AttentionPrefixGroup group = p.prefix_groups[g];
    int mine = 0;
    for (int i = static_cast<int>(threadIdx.x); i < group.num_rows; i += static_cast<int>(blockDim.x))
      mine |= group.rows[i] == row;
    if (__syncthreads_or(mine)) partitions = group.partitions;
  }
  return partitions;
}

// The first partition that any token of a row reads.
__device__ inline int first_partition(const AttentionParams& p, const AttentionRow& row) {
  const int first = row.first_pos - p.window + 1;
  return p.window > 0 && first > 0 ? first / kAttentionPartition : 0;
}

__device__ inline AttentionWork find_row_work(const AttentionParams& p, const AttentionSchedule& s, int tile,
                                              int rows) {
  AttentionWork work;
  const int per_kv_head = p.heads / p.kv_heads;
  if (p.extent.longest_row * per_kv_head <= rows) {  // a tile for each row
    work.row = tile;
    tile = 0;
    if (work.row >= p.num_rows) return work;
  } else {
    work.row = find_item(p.num_rows, tile, [&](int r) { return ceil_div(p.rows[r].n_tokens * per_kv_head, rows); });
    if (work.row < 0) return work;
  }
  const AttentionRow row = p.rows[work.row];
  work.first_query = tile * rows;
  work.count = min(rows, row.n_tokens * per_kv_head - work.first_query);
  if (work.count <= 0) return {};
  work.prefix = s.prefix_piece ? shared_prefix(p, work.row) : 0;
  work.first = max(first_partition(p, row), work.prefix);
  work.last = max(work.first, ceil_div(row.first_pos + row.n_tokens, kAttentionPartition));
  return work;
}

__device__ inline AttentionWork find_group_work(const AttentionParams& p, int tile, int rows) {
  AttentionWork work;
  const int per_kv_head = p.heads / p.kv_heads;
  for (int g = 0; g < p.num_prefix_groups; ++g) {
    const AttentionPrefixGroup group = p.prefix_groups[g];
    int tokens = 0;
    for (int i = static_cast<int>(threadIdx.x) % 32; i < group.num_rows; i += 32)
      tokens += p.rows[group.rows[i]].n_tokens;
    const int queries = __reduce_add_sync(0xffffffffu, tokens) * per_kv_head;
    const int tiles = group.partitions > 0 ? ceil_div(queries, rows) : 0;
    if (tile < tiles) {
      int query = tile * rows;
      work.count = min(rows, queries - query);
      const int member =
          find_item(group.num_rows, query, [&](int i) { return p.rows[group.rows[i]].n_tokens * per_kv_head; });
      work.first_query = query;
      work.members = group.rows + member;
      work.row = group.rows[member];
      work.last = group.partitions;
      return work;
    }
    tile -= tiles;
  }
  return work;
}

// Query i of the tile, for the KV head of this block.
__device__ inline QueryPlace find_query(const AttentionParams& p, const AttentionWork& work, int kv_head, int i) {
  if (i >= work.count) return {-1, 0, 0, 0};
  const int per_kv_head = p.heads / p.kv_heads, query = work.first_query + i;
  int token = query / per_kv_head, row = work.row;
  for (const int32_t* member = work.members; member && token >= p.rows[row].n_tokens; row = *++member)
    token -= p.rows[row].n_tokens;
  const AttentionRow at = p.rows[row];
  const int hi = at.first_pos + token + 1;
  return {at.first_token + token, kv_head * per_kv_head + query % per_kv_head,
          p.window > 0 && hi > p.window ? hi - p.window : 0, hi};
}

}  // namespace octavo::cuda
