#include "runtime/plan_batch.h"

#include <algorithm>

namespace octavo {

PlanBatch::PlanBatch(size_t num_groups, int max_tokens)
    : logit_row_(static_cast<size_t>(max_tokens)),
      rows_(num_groups),
      slots_(num_groups),
      copies_(num_groups),
      groups_(num_groups) {
  const auto tokens = static_cast<size_t>(max_tokens);
  tokens_.reserve(tokens);
  positions_.reserve(tokens);
  logit_tokens_.reserve(2 * tokens);  // before duplicates go
  for (auto& rows : rows_) rows.reserve(tokens);
}

const HostBatch& PlanBatch::build(const StepPlan& plan, size_t rows) {
  const size_t num_tokens = plan.tokens.size();
  tokens_.assign(plan.tokens.begin(), plan.tokens.end());
  positions_.resize(num_tokens);
  for (const PlanRow& row : plan.rows)
    for (int32_t i = 0; i < row.n_tokens; ++i) positions_[row.token_offset + i] = row.first_pos + i;

  for (size_t g = 0; g < groups_.size(); ++g) {
    const StepPlan::Group& group = plan.groups[g];
    rows_[g].clear();
    for (size_t r = 0; r < plan.rows.size(); ++r) {
      const PlanRow& row = plan.rows[r];
      rows_[g].push_back({row.token_offset, row.n_tokens, row.first_pos, group.tables.data() + group.table_offsets[r]});
    }
    copies_[g].clear();
    for (const BlockCopy& c : plan.copies)
      if (c.group == static_cast<int32_t>(g)) copies_[g].push_back({c.src, c.dst, c.slots});
    groups_[g] = {group.slots, rows_[g], group.tables, copies_[g]};
  }
  prefix_groups_.clear();
  for (const PrefixGroup& p : plan.prefix_groups)
    prefix_groups_.push_back({p.rows.data(), static_cast<int32_t>(p.rows.size()), p.partitions});

  // Logits: what is sampled and what is scored, each token once.
  logit_tokens_.clear();
  for (const SampleRow& s : plan.samples) logit_tokens_.push_back(s.token);
  for (const PlanRow& row : plan.rows)
    if (row.logits == LogitsWanted::kRange)
      for (int32_t i = row.logits_first; i < row.n_tokens; ++i) logit_tokens_.push_back(row.token_offset + i);
  if (!std::ranges::is_sorted(logit_tokens_)) std::ranges::sort(logit_tokens_);
  logit_tokens_.erase(std::unique(logit_tokens_.begin(), logit_tokens_.end()), logit_tokens_.end());
  for (size_t i = 0; i < logit_tokens_.size(); ++i) logit_row_[logit_tokens_[i]] = static_cast<int32_t>(i);
  if (rows > plan.rows.size()) pad(plan, rows);

  batch_.tokens = tokens_;
  batch_.positions = positions_;
  batch_.groups = groups_;
  batch_.prefix_groups = prefix_groups_;
  batch_.logit_tokens = logit_tokens_;
  return batch_;
}

void PlanBatch::pad(const StepPlan& plan, size_t rows) {
  const auto shortest = std::ranges::min_element(plan.rows, {}, &PlanRow::first_pos) - plan.rows.begin();
  for (size_t g = 0; g < groups_.size(); ++g) {
    slots_[g].assign(plan.groups[g].slots.begin(), plan.groups[g].slots.end());
    slots_[g].resize(rows, -1);
    while (rows_[g].size() < rows) {
      AttentionRow row = rows_[g][static_cast<size_t>(shortest)];
      row.first_token = static_cast<int32_t>(rows_[g].size());
      rows_[g].push_back(row);
    }
    groups_[g].slots = slots_[g];
    groups_[g].rows = rows_[g];
  }
  while (tokens_.size() < rows) {
    logit_tokens_.push_back(static_cast<int32_t>(tokens_.size()));
    tokens_.push_back(std::max(tokens_[static_cast<size_t>(shortest)], 0));
    positions_.push_back(positions_[static_cast<size_t>(shortest)]);
  }
}

}  // namespace octavo
