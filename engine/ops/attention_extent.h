#pragma once
#include <algorithm>
#include <span>

#include "ops/params.h"

namespace octavo {

// rows and groups in host memory.
inline AttentionExtent attention_extent(std::span<const AttentionRow> rows,
                                        std::span<const AttentionPrefixGroup> groups) {
  AttentionExtent extent;
  for (const AttentionRow& row : rows) {
    extent.num_tokens += row.n_tokens;
    extent.longest_row = std::max(extent.longest_row, row.n_tokens);
    extent.longest_context = std::max(extent.longest_context, row.first_pos + row.n_tokens);
  }
  for (const AttentionPrefixGroup& group : groups) {
    int tokens = 0;
    for (int i = 0; i < group.num_rows; ++i) tokens += rows[group.rows[i]].n_tokens;
    extent.largest_group = std::max(extent.largest_group, tokens);
    extent.longest_prefix = std::max(extent.longest_prefix, group.partitions);
  }
  return extent;
}

}  // namespace octavo
