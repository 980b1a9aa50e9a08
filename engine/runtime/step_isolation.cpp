#include "runtime/step_isolation.h"

#include <exception>

namespace octavo {

namespace {

// Rows [begin, end) of `plan` as a plan of its own. Copies stay whole: they are idempotent.
StepPlan part_of(const StepPlan& plan, size_t begin, size_t end) {
  StepPlan part;
  part.step = plan.step;
  part.copies = plan.copies;
  part.groups.resize(plan.groups.size());
  for (size_t g = 0; g < plan.groups.size(); ++g) part.groups[g].table_offsets.push_back(0);
  std::vector<int32_t> token_shift;
  for (size_t r = begin; r < end; ++r) {
    PlanRow row = plan.rows[r];
    const int32_t from = row.token_offset;
    row.token_offset = static_cast<int32_t>(part.tokens.size());
    token_shift.push_back(row.token_offset - from);
    part.tokens.insert(part.tokens.end(), plan.tokens.begin() + from, plan.tokens.begin() + from + row.n_tokens);
    for (size_t g = 0; g < plan.groups.size(); ++g) {
      const StepPlan::Group& whole = plan.groups[g];
      StepPlan::Group& group = part.groups[g];
      group.slots.insert(group.slots.end(), whole.slots.begin() + from, whole.slots.begin() + from + row.n_tokens);
      group.tables.insert(group.tables.end(), whole.tables.begin() + whole.table_offsets[r],
                          whole.tables.begin() + whole.table_offsets[r + 1]);
      group.table_offsets.push_back(static_cast<int32_t>(group.tables.size()));
    }
    part.rows.push_back(row);
  }
  for (SampleRow sample : plan.samples) {
    const auto row = static_cast<size_t>(sample.row);
    if (row < begin || row >= end) continue;
    sample.row -= static_cast<int32_t>(begin);
    sample.token += token_shift[row - begin];
    part.samples.push_back(sample);
  }
  return part;
}

bool fails(Executor& executor, const StepPlan& plan) {
  try {
    executor.submit(plan, 0);
    executor.wait(0);
    return false;
  } catch (const std::exception&) {
    return true;
  }
}

// The rows [begin, end) are known to fail together.
void search(Executor& executor, const StepPlan& plan, size_t begin, size_t end, std::vector<SeqId>& guilty) {
  if (end - begin == 1) {
    guilty.push_back(plan.rows[begin].seq);
    return;
  }
  const size_t middle = begin + (end - begin) / 2;
  if (fails(executor, part_of(plan, begin, middle))) search(executor, plan, begin, middle, guilty);
  if (fails(executor, part_of(plan, middle, end))) search(executor, plan, middle, end, guilty);
}

}  // namespace

void find_guilty(Executor& executor, const StepPlan& plan, std::vector<SeqId>& guilty) {
  if (!plan.rows.empty() && fails(executor, part_of(plan, 0, plan.rows.size())))
    search(executor, plan, 0, plan.rows.size(), guilty);
}

}  // namespace octavo
