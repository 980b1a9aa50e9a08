#include "sched/step_slot.h"

namespace octavo {

StepSlot::StepSlot(const PagedCache& cache) {
  plan.groups.resize(cache.num_groups());
  for (int g = 0; g < cache.num_groups(); ++g) retired.emplace_back(cache.pool(g).size());
  clear();
}

void StepSlot::clear() {
  plan.copies.clear();
  plan.rows.clear();
  plan.tokens.clear();
  for (StepPlan::Group& g : plan.groups) {
    g.slots.clear();
    g.tables.clear();
    g.table_offsets.assign(1, 0);
  }
  plan.samples.clear();
  rows.clear();
  changes.clear();
  sources.clear();
  for (HeldBlocks& blocks : retired) blocks.clear();
}

}  // namespace octavo
