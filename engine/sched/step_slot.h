#pragma once
#include <cstddef>
#include <cstdint>
#include <vector>

#include "cache/block_pool.h"
#include "plan/step_plan.h"

namespace octavo {

// What undoes one row of a plan.
struct PlannedRow {
  SeqId seq = 0;
  RequestId request = 0;
  int32_t first_pos = 0;
  int32_t n_tokens = 0;
  bool sampled = false;   // the row's last logits are sampled
  bool lockstep = false;  // and the token must be known before the sequence's next row is planned
  bool started = false;   // the sequence got its tables for this row
  bool admitted = false;  // the group entered the running set for this row
  // The state before the row.
  StepId pending_step = 0;
  int32_t pending_sample = -1;
  StepId last_step = 0;
  int32_t planned_before = 0;
  size_t changes = 0;  // sizes of the slot's and the plan's lists
  size_t sources = 0;
  size_t copies = 0;
  size_t samples = 0;
};

// A table entry that a plan set: appended, or put in the place of `previous`.
struct TableChange {
  SeqId seq = 0;
  int32_t group = 0;
  int32_t index = 0;
  BlockPin previous;
};

// One step in flight: the plan and the reservation behind it.
struct StepSlot {
  StepPlan plan;
  std::vector<PlannedRow> rows;  // as plan.rows
  std::vector<TableChange> changes;
  std::vector<BlockPin> sources;  // blocks that plan.copies read
  std::vector<BlockRef> retired;  // blocks given up while this step may still name them

  void clear(size_t groups);
};

}  // namespace octavo
