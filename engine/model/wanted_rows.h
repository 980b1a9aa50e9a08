#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "model/batch.h"

namespace octavo {

// The rows of a batch cut down to the tokens whose logits are wanted: behind the last layer's cache writes nothing else
// is needed. The tokens keep their places in the batch. Allocates nothing once reserved.
class WantedRows {
 public:
  explicit WantedRows(int max_tokens);

  // Runs of consecutive wanted tokens of each row, and the prefix groups over them.
  void cut(std::span<const AttentionRow> rows, std::span<const AttentionPrefixGroup> groups,
           std::span<const int32_t> wanted);
  std::span<const AttentionRow> rows() const { return rows_; }
  std::span<const AttentionPrefixGroup> prefix_groups() const { return groups_; }

 private:
  std::vector<AttentionRow> rows_;
  std::vector<int32_t> first_;  // [old rows + 1]: old row r became rows_ [first_[r], first_[r + 1])
  std::vector<int32_t> members_;
  std::vector<AttentionPrefixGroup> groups_;
};

}  // namespace octavo
