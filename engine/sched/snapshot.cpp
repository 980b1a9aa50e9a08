#include "sched/snapshot.h"

#include <algorithm>
#include <utility>

#include "sched/scheduler_impl.h"

namespace octavo {
namespace {

int32_t holders(const BlockPool& pool, BlockId id) {
  if (pool.held(id)) return std::max(1, pool.refs(id));  // a pin alone keeps the source of a copy
  return pool.node(id) == kNoNode ? BlockRun::kFree : BlockRun::kCached;
}

std::vector<BlockRun> block_map(const BlockPool& pool) {
  std::vector<BlockRun> map;
  for (BlockId id = 0; id < pool.size(); ++id) {
    const int32_t n = holders(pool, id);
    if (map.empty() || map.back().holders != n) map.push_back({n, 0});
    ++map.back().blocks;
  }
  return map;
}

}  // namespace

CacheGroupSnapshot Scheduler::Impl::group_snapshot(int group) const {
  const BlockPool& pool = cache.pool(group);
  CacheGroupSnapshot out;
  out.num_blocks = pool.size();
  out.window = cache.window(group);
  out.free_blocks = pool.num_free();
  out.cached_blocks = pool.num_cached();
  out.live_blocks = pool.num_live();
  std::vector<int32_t> filled(pool.size(), 0);  // slots, per block
  for (const SequenceGroup* g : running) {
    for (const auto& seq : g->branches) {
      if (!seq->started) continue;
      const BlockTable& table = seq->tables[group];
      const int32_t end = std::max(seq->filled, seq->planned);
      for (int i = table.first(); i < table.size(); ++i) {
        const int32_t slots = std::clamp(end - i * config.block_size, 0, config.block_size);
        filled[table[i]] = std::max(filled[table[i]], slots);
        out.table_tokens += slots;
        ++out.table_entries;
      }
    }
  }
  for (const int32_t slots : filled) out.live_tokens += slots;
  out.map = block_map(pool);
  return out;
}

// The running request that `g` would follow if the next plan came to it, whether or not one has.
const SequenceGroup* Scheduler::Impl::computes_prefix_of(const SequenceGroup& g) const {
  if (!config.prefix_caching || g.prompt_logits) return nullptr;
  int32_t common = config.block_size - 1;
  const SequenceGroup* leader = find_leader(g, common);
  return leader != nullptr && leader->branches[0]->planned < common ? leader : nullptr;
}

RunReason Scheduler::Impl::run_reason(const SequenceGroup& g) const {
  if (g.evicting) return RunReason::kGivingWay;
  const StepId last = next_step - 1;
  const bool planned = std::ranges::any_of(g.branches, [&](const auto& seq) { return seq->last_step == last; });
  const bool could = g.rows_in_flight == 0 || !g.in_lockstep();
  if (!planned && could && budget == 0) return RunReason::kTokenBudget;
  if (!planned && could && short_of_blocks) return RunReason::kNoBlocks;
  if (g.preempted && prefilling(g)) return RunReason::kRecomputing;
  return planned && g.cut_short_in == last && budget == 0 ? RunReason::kTokenBudget : RunReason::kOnTime;
}

SchedulerSnapshot Scheduler::Impl::snapshot() const {
  SchedulerSnapshot out;
  out.block_size = config.block_size;
  for (int g = 0; g < cache.num_groups(); ++g) out.groups.push_back(group_snapshot(g));
  for (const SequenceGroup* g : running) {
    RunningRequest& r = out.running.emplace_back();
    r.id = g->id;
    r.prompt_tokens = g->prompt_size;
    r.seqs = g->width();
    r.tenant = g->tenant->id;
    r.priority = g->priority;
    r.preempted = g->preempted;
    r.why = run_reason(*g);
    for (const auto& seq : g->branches) {
      r.tokens += static_cast<int64_t>(seq->tokens.size());
      r.computed += seq->computed;
      for (const BlockTable& table : seq->tables) r.blocks += table.size() - table.first();
    }
  }
  bool blocked = false;
  for (const Tenant* tenant : waiting.in_order()) {
    bool first = true;  // of those that follow nobody
    for (const SequenceGroup* g : tenant->waiting) {
      WaitingRequest& w = out.waiting.emplace_back();
      w.id = g->id;
      w.prompt_tokens = g->prompt_size;
      w.seqs = g->width();
      w.tenant = tenant->id;
      w.priority = g->priority;
      w.preempted = g->preempted;
      if (const SequenceGroup* leader = computes_prefix_of(*g)) {
        w.why = WaitReason::kPrefixLeader;
        w.leader = leader->id;
        continue;
      }
      if (g->arrival >= arrivals_seen && first && !blocked) continue;  // it may enter the next step
      w.why = WaitReason::kBehind;
      if (!std::exchange(first, false)) continue;
      if (tenant->limited) {
        w.why = WaitReason::kTenantLimit;
      } else if (blocked) {
        w.why = WaitReason::kBehindShare;
      } else {
        w.why = admission_stop;
        blocked = w.why != WaitReason::kNextStep;
        first = !blocked;
      }
    }
  }
  return out;
}

}  // namespace octavo
