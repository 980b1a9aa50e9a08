#include "sched/step_slot.h"

namespace octavo {

void StepSlot::clear(size_t groups) {
  plan.copies.clear();
  plan.rows.clear();
  plan.tokens.clear();
  plan.groups.resize(groups);
  for (StepPlan::Group& g : plan.groups) {
    g.slots.clear();
    g.tables.clear();
    g.table_offsets.assign(1, 0);
  }
  plan.samples.clear();
  rows.clear();
  changes.clear();
  sources.clear();
  retired.clear();
}

}  // namespace octavo
