#pragma once
#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <vector>

#include "base/errors.h"
#include "plan/outcome.h"
#include "plan/step_plan.h"
#include "sched/decision_log.h"
#include "sched/request.h"
#include "sched/snapshot.h"

namespace octavo {

enum class RetainBlocks : uint8_t { kAll, kWindow };

// What the scheduler knows of a KV group: how many blocks, and which of them a sequence still needs.
struct CacheGroup {
  int num_blocks = 0;
  RetainBlocks retain = RetainBlocks::kAll;
  int window = 0;  // kWindow: positions kept; blocks wholly before them are freed
};

struct SchedulerConfig {
  int block_size = 16;
  std::vector<CacheGroup> groups = {CacheGroup{}};
  int max_tokens_per_step = 512;  // the token budget
  int max_seqs = 256;             // sequences running at once
  int shared_prompt_tokens = 0;   // of prompts in a step, while there are several tenants or were lately; 0: the budget
  int max_seqs_per_tenant = 0;    // 0: no limit of its own
  int max_model_len = 0;          // prompt and output together
  bool prefix_caching = true;
  double watermark = 0.01;  // share of the pool kept free at admission
  int depth = 1;            // steps in flight
  int decisions = 2048;     // kept for decisions()
  int ageing_steps = 1024;  // a request that waits so long passes those of the next better priority that come then
};

struct SchedulerStats {
  int waiting = 0;  // requests
  int running = 0;
  int64_t preemptions = 0;
  int64_t prefix_queries = 0;  // prompt tokens looked up
  int64_t prefix_hits = 0;     // of them found in the cache (shared or copied)
  int64_t tokens_computed = 0;
  int total_blocks = 0;  // all groups together: free + live + cached = total
  int free_blocks = 0;
  int live_blocks = 0;
  int cached_blocks = 0;
  int64_t table_entries = 0;  // of all sequences: more than live_blocks where blocks are shared
  WaitReason queue_waits_for = WaitReason::kNextStep;  // what held the last admission up
};

// A request entered the running set for the first time.
struct Admission {
  RequestId id = 0;
  int32_t cached_tokens = 0;  // prompt tokens that need no computing
};

// A request that can make no progress, taken out of the schedule.
struct RequestFailure {
  RequestId id = 0;
  Refusal why;
};

// Iteration-level continuous batching (Orca, OSDI '22) over a paged cache (PagedAttention, SOSP '23) under a token
// budget, with chunked prefill (Sarathi-Serve, OSDI '24) and virtual token counters between tenants (VTC, OSDI '24).
// Integers in, plans out; owned by one thread, except check().
class Scheduler {
 public:
  explicit Scheduler(SchedulerConfig config);
  ~Scheduler();

  // What can never be served, refused with the numbers. Reads the configuration only: any thread may call it.
  std::optional<Refusal> check(const RequestSpec& spec) const;
  // The same of a request whose prompt of so many tokens is not known yet.
  std::optional<Refusal> check(const RequestSpec& spec, int64_t prompt) const;

  // What allocates may throw std::bad_alloc. add() and commit() have then changed nothing, plan() has undone what it
  // planned (who gave way stays preempted), and each may be called again; cancel() and rollback() need no memory.
  void add(const RequestSpec& spec);
  // Its blocks are free once no step in flight names them. A step runs whole all the same: followers may read what
  // the cancelled rows write.
  void cancel(RequestId id);
  bool has_work() const;  // anything waiting, running or in flight
  // Prompt and committed output of a sequence, valid until the next call; empty when there is no such sequence.
  std::span<const int32_t> tokens(SeqId id) const;

  // The next step, or null when nothing can be planned now. It changes no table: it holds a reservation. The plan
  // stays valid until its commit or rollback. At most config.depth plans are in flight.
  const StepPlan* plan();
  // False while a step in flight samples sequences whose next row needs its tokens: a plan now would leave them out.
  bool can_plan_ahead() const;
  // Commits are in order of steps. Every sample of the plan appears as a parent in `outcome`, or its sequence ends.
  void commit(StepId step, const StepOutcome& outcome);
  // Undoes this step and every later one; the next plan() may plan the same work again.
  void rollback(StepId step);
  // Steps that follow hold at most so many tokens, and of one prompt at most `chunk`: memory is short. 0: no limit but
  // the configuration's.
  void limit_steps(int32_t tokens, int32_t chunk);

  std::vector<Admission> take_admissions();
  std::vector<RequestFailure> take_failures();
  SchedulerStats stats() const;
  SchedulerSnapshot snapshot() const;  // O(blocks and table entries): for people, not for every step
  // The last ones of config.decisions. Any thread may read it, also when the scheduler is gone.
  std::shared_ptr<const DecisionLog> decisions() const;
  void audit() const;  // throws Error(kInternal, "audit", what is wrong)

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

}  // namespace octavo
