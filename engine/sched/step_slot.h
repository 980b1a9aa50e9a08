#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "cache/paged_cache.h"
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

// Blocks of a KV group that stay until a step has ended. Each is held once, so that there is room for all of them.
class HeldBlocks {
 public:
  explicit HeldBlocks(int num_blocks) : held_(num_blocks, 0) { refs_.reserve(num_blocks); }
  void hold(BlockRef block) {
    if (std::exchange(held_[block.id()], 1) == 0) refs_.push_back(std::move(block));
  }
  const std::vector<BlockRef>& refs() const { return refs_; }
  void clear() {
    for (const BlockRef& ref : refs_) held_[ref.id()] = 0;
    refs_.clear();
  }

 private:
  std::vector<BlockRef> refs_;
  std::vector<uint8_t> held_;  // [blocks]
};

// One step in flight: the plan and the reservation behind it.
struct StepSlot {
  explicit StepSlot(const PagedCache& cache);

  StepPlan plan;
  std::vector<PlannedRow> rows;  // as plan.rows
  std::vector<TableChange> changes;
  std::vector<BlockPin> sources;    // blocks that plan.copies read
  std::vector<HeldBlocks> retired;  // [KV groups]: given up while this step may still name them

  void clear();  // neither allocates nor throws
};

}  // namespace octavo
