#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

#include "cache/block_table.h"
#include "cache/prefix_index.h"
#include "plan/step_plan.h"
#include "sched/request.h"

namespace octavo {

struct SequenceGroup;
struct Tenant;

// One branch of a request. Positions [0, computed) are committed, [computed, planned) are in steps in flight.
struct Sequence {
  SeqId id = 0;
  SequenceGroup* group = nullptr;
  std::vector<int32_t> tokens;     // prompt and committed output
  std::vector<BlockTable> tables;  // [KV groups]
  bool started = false;            // its tables cover `filled` positions; else they are empty

  int32_t computed = 0;
  int32_t planned = 0;
  int32_t filled = 0;  // positions whose K and V lie in the tables: beyond `computed` where blocks came from others

  // The block that its parent was writing when they parted: it holds more than this sequence knows of, for the parent
  // or for the index, so it is never written in place.
  int32_t foreign_at = -1;

  // Samples in flight: tokens that count as there although nobody knows them yet.
  int32_t pending = 0;
  StepId pending_step = 0;  // the latest of them: where the next row takes its token from
  int32_t pending_sample = -1;

  // Its place in the prefix index.
  NodeId node = kNoNode;  // of the last full block that is indexed; held
  int32_t indexed = 0;    // full blocks that are indexed

  // What earlier steps than last_step cover: only that may be the source of a copy in last_step.
  StepId last_step = 0;
  int32_t planned_before = 0;

  enum class Sampled : uint8_t { kNo, kUnnamed, kGoesOn } sampled = Sampled::kNo;  // while commit() runs

  int32_t length() const { return static_cast<int32_t>(tokens.size()) + pending; }
  int32_t remaining() const { return length() - planned; }  // positions to compute before the next token
  int32_t written(StepId step) const { return last_step == step ? planned_before : planned; }
};

// A request. Its branches are admitted, preempted and sampled together.
struct SequenceGroup {
  RequestId id = 0;
  std::vector<SeqId> seq_ids;  // as given; the first computes the prompt
  uint64_t ns = 0;
  int32_t shared_blocks = 0;  // so many leading ones are cached for all namespaces
  Tenant* tenant = nullptr;
  int32_t priority = 0;
  int64_t key = 0;   // its place among the tenant's: the step of its arrival, later by some steps for each priority
  int32_t rank = 0;  // priority, or a follower's that is more urgent
  uint64_t arrival = 0;
  int32_t prompt_size = 0;
  int32_t max_new_tokens = 0;
  bool prompt_logits = false;
  bool lockstep = false;
  SeqId source = 0;  // shares its blocks when the group is admitted, 0: none

  std::vector<std::unique_ptr<Sequence>> branches;
  bool running = false;
  bool preempted = false;  // ran before and waits again
  bool admitted = false;   // was reported by take_admissions()
  bool forked = false;     // the prompt's sample is committed
  bool evicting = false;   // will be preempted when no step in flight names it
  int32_t rows_in_flight = 0;
  int32_t logits_done = 0;  // prompt positions whose logits are committed

  // A waiting request follows a running one that computes their common prefix.
  std::optional<RequestId> leader;
  int32_t common = 0;
  int64_t blocked_room = -1;  // the room there was when it could not be admitted,
  StepId blocked_step = 0;    // and when that was
  StepId cut_short_in = 0;    // the last step in which others left its prompt fewer tokens than it wanted

  uint64_t ns_of(int32_t block) const { return block < shared_blocks ? kSharedNamespace : ns; }
  // Seats it takes: branches to come count.
  int32_t width() const { return static_cast<int32_t>(forked ? branches.size() : seq_ids.size()); }
  // Its next row is planned only once its last token is known: asked for, or since branches of n > 1 and beams are
  // sampled in one step, even when one alone is left.
  bool in_lockstep() const { return lockstep || seq_ids.size() > 1 || branches.size() > 1; }
};

}  // namespace octavo
