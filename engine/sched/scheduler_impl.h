#pragma once
#include <algorithm>
#include <memory>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/id_map.h"
#include "cache/paged_cache.h"
#include "sched/fair_queue.h"
#include "sched/group_queue.h"
#include "sched/prefix_groups.h"
#include "sched/scheduler.h"
#include "sched/sequence.h"
#include "sched/step_slot.h"

namespace octavo {

// Blocks wanted per KV group. Models have one or two groups; more cost an allocation.
using BlockCounts = std::vector<int64_t>;

struct Scheduler::Impl {
  explicit Impl(SchedulerConfig config);

  // scheduler.cpp: requests
  std::optional<Refusal> check(const RequestSpec& spec, int64_t prompt) const;
  void add(const RequestSpec& spec);
  void insert(std::unique_ptr<SequenceGroup> g);
  void cancel(RequestId id);
  void fail(SequenceGroup& g, Refusal why);
  void remove(SequenceGroup& g);
  void preempt(SequenceGroup& g);
  void reset(Sequence& seq);  // gives its blocks up; it starts again from the cache
  void retire(const SequenceGroup& g, int kv_group, BlockRef block);
  Sequence* find_sequence(SeqId id) const {
    Sequence* const* seq = sequences.find(id);
    return seq ? *seq : nullptr;
  }
  void set_rank(SequenceGroup& g, int32_t rank);
  SchedulerStats current_stats() const;
  void audit() const;

  // snapshot.cpp
  SchedulerSnapshot snapshot() const;
  CacheGroupSnapshot group_snapshot(int group) const;
  const SequenceGroup* computes_prefix_of(const SequenceGroup& g) const;
  RunReason run_reason(const SequenceGroup& g) const;

  // planner.cpp: who runs in the next step
  const StepPlan* plan();
  bool fill(StepSlot& slot);  // false: nothing can be planned
  bool can_plan_ahead() const;
  void build(StepSlot& slot);
  bool must_leave_first(const StepSlot& slot) const;
  void limit_prompts();
  void note_plan(const StepSlot& slot);
  bool decode_ready(const SequenceGroup& g) const;
  bool prefilling(const SequenceGroup& g) const;
  void plan_decode(StepSlot& slot, SequenceGroup& g);
  void plan_prefill(StepSlot& slot, SequenceGroup& g);
  void plan_prompts(StepSlot& slot);
  void note_cut(SequenceGroup& g, int32_t left) const;
  bool unblock();  // nothing could be planned: make room or fail the request that cannot run; false: nobody is left
  enum class Room { kYes, kLater, kSelf };
  Room make_room(SequenceGroup& g, const Sequence& seq, int32_t n);

  // rows.cpp: what a row adds to the plan and how it is undone
  bool must_copy(const Sequence& seq, int group, int32_t write) const;
  int32_t fitting(const Sequence& seq, int32_t n) const;  // tokens of n that the free blocks can take
  void plan_row(StepSlot& slot, Sequence& seq, int32_t n);
  void reserve_row(StepSlot& slot, Sequence& seq, int32_t n) const;  // all the memory that a row takes
  void reserve_blocks(StepSlot& slot, Sequence& seq, int32_t n);
  void undo_row(StepSlot& slot);
  void undo_rows(StepSlot& slot, size_t keep);

  // admission.cpp: where a sequence starts and whether a request may enter
  void open_admission();
  void promise(const SequenceGroup& g, int sign);
  bool admit_next(StepSlot& slot, Tenant& tenant);  // false: nobody else enters this step, admission_stop says why
  enum class Admit { kYes, kFollows, kNoRoom };
  Admit try_admit(StepSlot& slot, SequenceGroup& g);
  const Sequence* running_source(SequenceGroup& g) const;
  bool follow(SequenceGroup& g, const Sequence*& source);
  SequenceGroup* find_leader(const SequenceGroup& g, int32_t& common) const;
  void lend_priority(const SequenceGroup& follower, SequenceGroup& leader);
  bool still_follows(SequenceGroup& g, const Sequence*& source);
  bool ready(const SequenceGroup& g, const Sequence& lead) const;
  int32_t shareable(const Sequence& lead, int32_t common) const;
  int32_t takeover_limit(const Sequence& seq) const;
  void find_prefix(const Sequence& seq);  // into `match`, which start() reads
  void start(StepSlot& slot, Sequence& seq, const Sequence* lead, int32_t common);
  int32_t start_row(StepSlot& slot, Sequence& seq, const Sequence* lead, int32_t common);
  int64_t blocks_to_enter(const SequenceGroup& g, const Sequence* source, int group) const;
  bool has_room(const SequenceGroup& g, const Sequence* source) const;
  int64_t blocks_to_finish(const SequenceGroup& g, int group) const;
  int64_t room(int group) const;

  // claims.cpp: who gives way to whom
  void count_held(int group);
  int tightest_group() const;
  SequenceGroup* last_of(const Tenant& tenant) const;
  SequenceGroup& victim();
  void claim_seats(const SequenceGroup& g);
  void claim_blocks(const SequenceGroup& g, const Sequence* source);
  bool claim_priority(const SequenceGroup& g);
  void evict(SequenceGroup* g, const SequenceGroup& favoured);

  // prefetch.cpp
  void prefetch(const StepSlot& slot) const;

  // commit.cpp
  void commit(StepId step, const StepOutcome& outcome);
  void check_outcome(const StepSlot& slot, const StepOutcome& outcome) const;
  // All the memory that a commit takes: what it makes is made, and the rest has room.
  struct CommitRoom {
    std::vector<std::unique_ptr<Sequence>> children;  // in the order of the outcomes that fork
    using Overlong = std::pair<SeqId, Refusal>;
    std::vector<Overlong> overlong;  // sequences that nobody ended in time
  };
  CommitRoom reserve_commit(const StepSlot& slot, const StepOutcome& outcome);
  std::unique_ptr<Sequence> make_child(const Sequence& parent, SeqId id, size_t new_tokens) const;
  void advance(const PlannedRow& row);
  void publish(Sequence& seq);  // indexes what is committed
  void leave_window(Sequence& seq);
  void apply(const StepOutcome& outcome, CommitRoom& room);
  void fork(Sequence& parent, std::unique_ptr<Sequence> child);
  void end_branch(Sequence& seq);
  void rollback(StepId step);
  void limit_steps(int32_t tokens, int32_t chunk);

  int32_t blocks_for(int64_t positions) const {
    return static_cast<int32_t>((positions + config.block_size - 1) / config.block_size);
  }
  int32_t chunk() const { return chunk_limit > 0 ? std::min(budget, chunk_limit) : budget; }  // of one prompt
  int32_t oldest_block(int group, int32_t position) const;  // that a query at `position` reads

  SchedulerConfig config;
  PagedCache cache;
  bool windowed = false;  // some group keeps only a window

  std::unordered_map<RequestId, std::unique_ptr<SequenceGroup>> groups;
  IdMap<Sequence*> sequences;
  FairQueue waiting;
  GroupQueue<RunningOrder> running;
  uint64_t arrivals = 0;

  std::vector<std::unique_ptr<StepSlot>> in_flight;  // oldest first
  std::vector<std::unique_ptr<StepSlot>> spare;
  StepId next_step = 1;
  // While a plan is built; of the last one for snapshots.
  int32_t budget = 0;
  bool short_of_blocks = false;
  BlockCounts promised;  // blocks that running requests still need for their prompts
  bool admission_open = false;
  int32_t seats = 0;  // left
  int32_t followers = 0;

  // Of the last plan, for snapshots.
  WaitReason admission_stop = WaitReason::kNextStep;  // what the first request that was not admitted waits for
  uint64_t arrivals_seen = 0;

  StepId shared_until = 0;  // steps before it are kept short for several tenants

  int32_t step_limit = 0;  // 0: none but the configuration's
  int32_t chunk_limit = 0;

  std::shared_ptr<DecisionLog> log;  // others may read it
  PrefixGrouper grouper;
  std::vector<Admission> admissions;
  std::vector<RequestFailure> failures;
  SchedulerStats stats;
  // Scratch.
  PrefixMatch match;
  std::vector<BlockId> blocks;  // [KV groups]
  std::vector<uint8_t> seen;    // [blocks]
};

}  // namespace octavo
