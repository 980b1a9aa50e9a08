#pragma once
// How the attention of a step is cut into blocks. It decides who computes what and when, never a result.
#include <cstddef>
#include <cstdint>

#include "ops/params.h"

#ifdef __CUDACC__
#define OCTAVO_HOST_DEVICE __host__ __device__
#else
#define OCTAVO_HOST_DEVICE
#endif

namespace octavo::cuda {

inline constexpr int kAttentionWarps = 4;
inline constexpr int kAttentionThreads = 32 * kAttentionWarps;
inline constexpr int kTileRows = 16;  // queries of one tensor core tile
inline constexpr int kMaxPairs = 4;   // 16 value columns each, per warp
inline constexpr int kMaxHeadDim = 16 * kMaxPairs * kAttentionWarps;
inline constexpr int kStatePad = 4;  // a state: [v_dim] output, maximum, sum, two unused

// Blocks that a multiprocessor has registers for, by the tiles of a block.
OCTAVO_HOST_DEVICE constexpr int attention_residency(int tiles) { return tiles == 1 ? 3 : 2; }

// States that the pieces of `partitions` leave: the first piece is one, each later partition stands alone, as they are
// combined from left to right.
OCTAVO_HOST_DEVICE constexpr int count_states(int partitions, int piece) {
  return partitions > piece ? 1 + partitions - piece : 1;
}

// Where things lie in a block's shared memory, in bytes. Rows are an odd number of 16-byte units apart, so that the
// eight rows of a matrix lie in different banks.
struct AttentionLayout {
  int query_stride, key_stride, value_stride, weight_stride;
  int queries, keys, values, weights;
  int key_scales;                  // [128] floats
  int value_scales;                // [2, 128] floats of two partitions
  int maxima, sums, scale_maxima;  // [rows, warps] floats
  int factors;                     // [rows] float2
  int query_table;                 // [rows] QueryPlace
  int block_ids;                   // [2, 16] block table of two partitions
  int bytes;
};

struct QueryPlace {
  int32_t token;  // -1: none
  int32_t head;
  int32_t lo, hi;  // visible positions
};

inline constexpr int kMaxBlocksPerPartition = kAttentionPartition / 8;

constexpr AttentionLayout attention_layout(int k_dim, int v_dim, int element, bool scaled, int rows,
                                           bool single_buffer) {
  AttentionLayout l{};
  int next = 0;
  const auto take = [&next](int bytes) {
    const int at = next;
    next += (bytes + 15) / 16 * 16;
    return at;
  };
  const auto odd = [](int bytes) { return (bytes / 16 | 1) * 16; };
  l.query_stride = odd(2 * k_dim);
  l.key_stride = odd(element * k_dim);
  l.value_stride = odd(element * v_dim);
  l.weight_stride = odd(2 * kAttentionPartition);
  l.queries = take(rows * l.query_stride);
  const int key_bytes = kAttentionPartition * l.key_stride, value_bytes = kAttentionPartition * l.value_stride;
  if (single_buffer) {
    l.keys = l.values = take(key_bytes > value_bytes ? key_bytes : value_bytes);
  } else {
    l.keys = take(key_bytes);
    l.values = take(value_bytes);
  }
  l.weights = take(rows * l.weight_stride);
  const int floats = kAttentionWarps * rows * 4;
  l.maxima = take(floats);
  l.sums = take(floats);
  if (scaled) {
    l.scale_maxima = take(floats);
    l.key_scales = take(kAttentionPartition * 4);
    l.value_scales = take(2 * kAttentionPartition * 4);
  }
  l.factors = take(rows * 8);
  l.query_table = take(rows * static_cast<int>(sizeof(QueryPlace)));
  l.block_ids = take(2 * kMaxBlocksPerPartition * 4);
  l.bytes = next;
  return l;
}

struct AttentionSchedule {
  bool groups = false;         // this launch is over the queries of prefix groups, else over those of rows
  bool single_buffer = false;  // values come to where the keys were, for lack of shared memory
  int piece = 0;               // partitions that a block takes (grid z)
  int prefix_piece = 0;        // the same in the launch over groups; 0: groups are not used
  int own_states = 0;          // states of a query left by the pieces of its row; 0: rows are never cut
  int states = 0;              // of a query, own first, then those of its prefix
  AttentionLayout layout{};
  float* state = nullptr;  // [num_tokens, heads, states, v_dim + kStatePad]
};

}  // namespace octavo::cuda
