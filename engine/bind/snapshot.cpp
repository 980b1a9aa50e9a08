#include "snapshot.h"

namespace octavo {

const char* reason_name(WaitReason why) {
  switch (why) {
    case WaitReason::kNextStep:
      return "next_step";
    case WaitReason::kNoBlocks:
      return "no_blocks";
    case WaitReason::kTokenBudget:
      return "token_budget";
    case WaitReason::kSequenceLimit:
      return "sequence_limit";
    case WaitReason::kPrefixLeader:
      return "prefix_in_flight";
    case WaitReason::kBehind:
      return "behind";
    case WaitReason::kTenantLimit:
      return "tenant_limit";
    case WaitReason::kBehindShare:
      return "behind_share";
  }
  return "?";
}

namespace {

nb::dict group_dict(const CacheGroupSnapshot& g) {
  nb::dict d;
  d["num_blocks"] = g.num_blocks;
  d["window"] = g.window;
  d["free_blocks"] = g.free_blocks;
  d["cached_blocks"] = g.cached_blocks;
  d["live_blocks"] = g.live_blocks;
  d["table_entries"] = g.table_entries;
  d["table_tokens"] = g.table_tokens;
  d["live_tokens"] = g.live_tokens;
  nb::list map;
  for (const BlockRun& run : g.map) map.append(nb::make_tuple(run.holders, run.blocks));
  d["map"] = map;
  return d;
}

nb::dict running_dict(const RunningRequest& r) {
  nb::dict d;
  d["id"] = r.id;
  d["prompt_tokens"] = r.prompt_tokens;
  d["sequences"] = r.seqs;
  d["tenant"] = r.tenant;
  d["priority"] = r.priority;
  d["tokens"] = r.tokens;
  d["computed"] = r.computed;
  d["blocks"] = r.blocks;
  return d;
}

nb::dict waiting_dict(const WaitingRequest& w) {
  nb::dict d;
  d["id"] = w.id;
  d["prompt_tokens"] = w.prompt_tokens;
  d["sequences"] = w.seqs;
  d["tenant"] = w.tenant;
  d["priority"] = w.priority;
  d["preempted"] = w.preempted;
  d["reason"] = reason_name(w.why);
  d["leader"] = w.leader == 0 ? nb::object(nb::none()) : nb::object(nb::int_(w.leader));
  return d;
}

}  // namespace

nb::dict snapshot_dict(const SchedulerSnapshot& snapshot) {
  nb::list groups, running, waiting;
  for (const CacheGroupSnapshot& g : snapshot.groups) groups.append(group_dict(g));
  for (const RunningRequest& r : snapshot.running) running.append(running_dict(r));
  for (const WaitingRequest& w : snapshot.waiting) waiting.append(waiting_dict(w));
  nb::dict d;
  d["block_size"] = snapshot.block_size;
  d["groups"] = groups;
  d["running"] = running;
  d["waiting"] = waiting;
  return d;
}

nb::list decisions_list(const std::vector<Decision>& decisions) {
  // By kind: its name and those of its values.
  static const std::vector<std::vector<const char*>> kNames = {
      {"add", "prompt_tokens", "max_new_tokens", "priority", "tenant", "first_sequence", "sequences", "prompt_logits"},
      {"cancel"},
      {"commit"},
      {"rollback"},
      {"limit", "step_tokens", "chunk_tokens"},
      {"plan", "rows", "tokens", "samples", "queue_waits_for"},
      {"admit", "cached_tokens", "tokens"},
      {"evict", "favoured"},
      {"preempt", "computed"},
      {"end", "sequence"},
      {"fault", "sequence"},
      {"fail"},
  };
  nb::list out;
  for (const Decision& decision : decisions) {
    const auto& names = kNames.at(static_cast<size_t>(decision.kind));
    nb::dict d;
    d["kind"] = names[0];
    d["step"] = decision.step;
    if (decision.request != 0) d["request"] = decision.request;
    for (size_t i = 1; i < names.size(); ++i) d[names[i]] = decision.values[i - 1];
    if (decision.kind == DecisionKind::kAdd) d["tenant"] = static_cast<uint64_t>(decision.values[3]);
    if (decision.kind == DecisionKind::kPlan)
      d["queue_waits_for"] = reason_name(static_cast<WaitReason>(decision.values[3]));
    out.append(d);
  }
  return out;
}

}  // namespace octavo
