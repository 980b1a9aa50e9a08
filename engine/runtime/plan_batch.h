#pragma once
#include <vector>

#include "model/batch.h"
#include "plan/step_plan.h"

namespace octavo {

// A step plan as the model reads it. Allocates nothing once it has seen the largest step.
class PlanBatch {
 public:
  PlanBatch(size_t num_groups, int max_tokens);

  // Valid until the next call, as long as the plan is. `rows`: what the batch is padded to, by repeating the row with
  // the shortest context without writing anything; only where every row has one token, whose logits are wanted.
  const HostBatch& build(const StepPlan& plan, size_t rows = 0);
  // Where the logits of token `token` are among those of the batch.
  int logit_row(int token) const { return logit_row_[token]; }

 private:
  void pad(const StepPlan& plan, size_t rows);

  std::vector<int32_t> tokens_, positions_, logit_tokens_, logit_row_;
  std::vector<std::vector<AttentionRow>> rows_;
  std::vector<std::vector<int32_t>> slots_;  // of padded batches
  std::vector<std::vector<SlotCopy>> copies_;
  std::vector<HostBatch::Group> groups_;
  std::vector<AttentionPrefixGroup> prefix_groups_;
  HostBatch batch_;
};

}  // namespace octavo
