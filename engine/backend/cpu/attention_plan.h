#pragma once
#include <cstddef>
#include <cstdint>

#include "ops/backend.h"
#include "ops/params.h"

namespace octavo::cpu {

// The softmax states of a row's queries that the first pass leaves in slots for the second. Query (token, head) has
// `prefix_count` of them at prefix_base + (token * heads + head) * prefix_count, then `own_count` likewise; a slot
// holds m, l, o[v_dim].
struct RowPartials {
  int first = 0;  // the row's own partitions: [first, last)
  int last = 0;
  int prefix_count = 0;  // 0: no shared prefix; 1: its combined state; else one state per partition
  int own_count = 0;     // 0: computed by the tile that finishes the row; else last - first states
  int64_t prefix_base = 0;
  int64_t own_base = 0;
};

// Consecutive queries of a row, or of the rows of a prefix group: tokens in order, for each token the heads of one KV
// head. A tile is done for every KV head.
struct QueryTile {
  int group = -1;  // prefix group, -1: none
  int member = 0;  // index into rows, or into the group's rows, of the first query
  int token = 0;   // its token in that row
  int head = 0;    // its head among those of the KV head
  int count = 0;   // at most kMaxTileQueries
  int first = 0;   // partitions [first, last)
  int last = 0;
  bool finishes = false;  // writes the output, else states into slots
};

// How the queries of a step are cut into tiles. It decides who computes what and when, never a result.
struct AttentionPlan {
  RowPartials* rows = nullptr;  // [num_rows]
  QueryTile* tiles = nullptr;   // first pass, then second pass
  int first_pass = 0;
  int second_pass = 0;
  int max_tiles = 0;
  int kv_heads = 1;              // neighbours that are worked on together, partition by partition
  std::byte* workers = nullptr;  // scratch of worker w at workers + w * worker_bytes
  size_t worker_bytes = 0;
  float* slots = nullptr;
  int64_t num_slots = 0;
  int64_t slots_used = 0;

  float* slot(int64_t index, int v_dim) const { return slots + index * (v_dim + 2); }
};

// Lays the plan out in the workspace. The bytes without slots are fixed_bytes(...).
size_t attention_fixed_bytes(int num_rows, int num_groups, int num_tokens, int heads, int k_dim, int v_dim,
                             int threads);
AttentionPlan plan_attention(const AttentionParams& p, int threads, std::byte* workspace, size_t workspace_bytes);

// A query of the tile at hand: row, its token, head.
struct TileQuery {
  int row, token, head;
};
size_t attention_worker_bytes(int k_dim, int v_dim);

}  // namespace octavo::cpu
