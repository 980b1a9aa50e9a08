#include "snapshot.h"

#include "sched/names.h"

namespace octavo {

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
  d["preempted"] = r.preempted;
  d["reason"] = name_of(r.why);
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
  d["reason"] = name_of(w.why);
  d["leader"] = w.leader == 0 ? nb::object(nb::none()) : nb::object(nb::int_(w.leader));
  return d;
}

nb::object value_object(ValueType type, int64_t value) {
  switch (type) {
    case ValueType::kUnsigned:
      return nb::int_(static_cast<uint64_t>(value));
    case ValueType::kFlag:
      return nb::bool_(value != 0);
    case ValueType::kWaitReason:
      return nb::str(name_of(static_cast<WaitReason>(value)));
    case ValueType::kInteger:
      break;
  }
  return nb::int_(value);
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

nb::list decisions_list(const DecisionLog& log) {
  nb::list out;
  for (const Decision& decision : log.last()) {
    const DecisionShape& shape = shape_of(decision.kind);
    nb::dict d;
    d["kind"] = shape.kind;
    d["step"] = decision.step;
    if (decision.request != 0) d["request"] = decision.request;
    for (size_t i = 0; i < shape.values.size() && shape.values[i].name != nullptr; ++i)
      d[shape.values[i].name] = value_object(shape.values[i].type, decision.values[i]);
    out.append(d);
  }
  return out;
}

nb::dict scheduler_config_dict(const SchedulerConfig& config) {
  nb::list groups;
  for (const CacheGroup& g : config.groups)
    groups.append(nb::make_tuple(g.num_blocks, g.retain == RetainBlocks::kWindow ? g.window : 0));
  nb::dict d;
  d["groups"] = groups;
  d["block_size"] = config.block_size;
  d["max_tokens_per_step"] = config.max_tokens_per_step;
  d["max_seqs"] = config.max_seqs;
  d["max_model_len"] = config.max_model_len;
  d["prefix_caching"] = config.prefix_caching;
  d["watermark"] = config.watermark;
  d["depth"] = config.depth;
  d["max_seqs_per_tenant"] = config.max_seqs_per_tenant;
  d["ageing_steps"] = config.ageing_steps;
  return d;
}

}  // namespace octavo
