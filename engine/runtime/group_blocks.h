#pragma once
#include <cstddef>
#include <cstdint>
#include <limits>
#include <vector>

#include "ops/kv_group.h"

namespace octavo {

// How much of a window group can be in use at once, and beyond which it gets no more blocks: twice the windows of all
// running sequences and the tokens of a step, so that as many windows of finished ones stay cached. 0: no bound.
inline int64_t most_blocks(const KvGroup& group, int block_size, int max_seqs, int max_tokens) {
  if (group.retain != Retain::kWindow) return 0;
  const int64_t window = (group.window + block_size - 1) / block_size;
  const int64_t step = (int64_t{max_tokens} + block_size - 1) / block_size;
  return 2 * (max_seqs * (window + 2) + step);
}

// Blocks of each KV group where the first has `num_blocks`: as many, up to its bound. The first has none, since it
// keeps every position, or no other group does.
inline std::vector<int> group_blocks(const std::vector<KvGroup>& groups, int num_blocks, int block_size, int max_seqs,
                                     int max_tokens) {
  std::vector<int> out;
  for (const KvGroup& group : groups) {
    const int64_t most = out.empty() ? 0 : most_blocks(group, block_size, max_seqs, max_tokens);
    out.push_back(most == 0 || most > num_blocks ? num_blocks : static_cast<int>(most));
  }
  return out;
}

// Bytes of such pools. block_bytes: one per group.
inline size_t pool_bytes(const std::vector<int>& blocks, const std::vector<size_t>& block_bytes) {
  size_t total = 0;
  for (size_t g = 0; g < blocks.size(); ++g) total += static_cast<size_t>(blocks[g]) * block_bytes[g];
  return total;
}

// The most blocks that `budget` bytes hold.
inline int fitting_blocks(const std::vector<KvGroup>& groups, const std::vector<size_t>& block_bytes, size_t budget,
                          int block_size, int max_seqs, int max_tokens) {
  int low = 0, high = std::numeric_limits<int>::max();
  while (low < high) {
    const int middle = low + (high - low + 1) / 2;
    const auto blocks = group_blocks(groups, middle, block_size, max_seqs, max_tokens);
    if (pool_bytes(blocks, block_bytes) <= budget) {
      low = middle;
    } else {
      high = middle - 1;
    }
  }
  return low;
}

}  // namespace octavo
