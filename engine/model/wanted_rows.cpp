#include "model/wanted_rows.h"

namespace octavo {

WantedRows::WantedRows(int max_tokens) {
  const auto most = static_cast<size_t>(max_tokens);
  rows_.reserve(most);
  first_.reserve(most + 1);
  members_.reserve(most);
  groups_.reserve(most);
}

void WantedRows::cut(std::span<const AttentionRow> rows, std::span<const AttentionPrefixGroup> groups,
                     std::span<const int32_t> wanted) {
  rows_.clear();
  first_.clear();
  members_.clear();
  groups_.clear();
  size_t next = 0;  // of wanted
  for (const AttentionRow& row : rows) {
    first_.push_back(static_cast<int32_t>(rows_.size()));
    const int32_t end = row.first_token + row.n_tokens;
    while (next < wanted.size() && wanted[next] < end) {
      AttentionRow run = row;
      run.first_token = wanted[next];
      run.first_pos += run.first_token - row.first_token;
      run.n_tokens = 1;
      while (++next < wanted.size() && wanted[next] < end && wanted[next] == run.first_token + run.n_tokens)
        ++run.n_tokens;
      rows_.push_back(run);
    }
  }
  first_.push_back(static_cast<int32_t>(rows_.size()));
  for (const AttentionPrefixGroup& group : groups) {
    const int32_t* begin = members_.data() + members_.size();
    for (int32_t i = 0; i < group.num_rows; ++i) {
      for (int32_t r = first_[group.rows[i]]; r < first_[group.rows[i] + 1]; ++r) members_.push_back(r);
    }
    groups_.push_back({begin, static_cast<int32_t>(members_.data() + members_.size() - begin), group.partitions});
  }
}

}  // namespace octavo
