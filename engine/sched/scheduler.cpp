#include "sched/scheduler.h"

#include <algorithm>
#include <random>
#include <utility>

#include "base/format.h"
#include "sched/scheduler_impl.h"

namespace octavo {
namespace {

std::vector<PagedCacheGroup> cache_groups(const SchedulerConfig& config) {
  std::vector<PagedCacheGroup> groups;
  for (const CacheGroup& g : config.groups) {
    groups.push_back({g.num_blocks, g.retain == RetainBlocks::kWindow ? g.window : 0});
  }
  return groups;
}

// Unpredictable, so that nobody can prepare prompts that crowd one bucket. Identity never depends on it.
PrefixKey random_key() {
  std::random_device source;
  const auto word = [&] { return uint64_t{source()} << 32 | source(); };
  const uint64_t hi = word();
  return {hi, word()};
}

SchedulerConfig checked(SchedulerConfig config) {
  const auto require = [](bool ok, const char* name, int64_t value, const char* rule) {
    if (!ok) throw Error(ErrorCode::kInvalidArgument, name, cat(name, " must be ", rule, ", got ", value));
  };
  require(config.block_size >= 1, "block_size", config.block_size, "at least 1");
  require(!config.groups.empty(), "groups", 0, "one KV group or more");
  for (const CacheGroup& g : config.groups) {
    require(g.num_blocks >= 1, "num_blocks", g.num_blocks, "at least 1");
    require(g.retain == RetainBlocks::kAll || g.window >= 1, "window", g.window, "at least 1");
  }
  require(config.max_tokens_per_step >= 1, "max_tokens_per_step", config.max_tokens_per_step, "at least 1");
  require(config.max_seqs >= 1, "max_seqs", config.max_seqs, "at least 1");
  require(config.max_seqs_per_tenant >= 0, "max_seqs_per_tenant", config.max_seqs_per_tenant, "at least 0");
  require(config.shared_prompt_tokens >= 0, "shared_prompt_tokens", config.shared_prompt_tokens, "at least 0");
  require(config.decisions >= 1, "decisions", config.decisions, "at least 1");
  require(config.ageing_steps >= 0, "ageing_steps", config.ageing_steps, "at least 0");
  require(config.max_model_len >= 2, "max_model_len", config.max_model_len, "at least 2");
  require(config.depth == 1 || config.depth == 2, "depth", config.depth, "1 or 2");
  if (!(config.watermark >= 0.0 && config.watermark < 1.0)) {
    throw Error(ErrorCode::kInvalidArgument, "watermark", cat("watermark must be in [0, 1), got ", config.watermark));
  }
  return config;
}

}  // namespace

Scheduler::Impl::Impl(SchedulerConfig c)
    : config(checked(std::move(c))),
      cache(config.block_size, cache_groups(config), prefix_key, random_key()),
      promised(config.groups.size()),
      log(std::make_shared<DecisionLog>(static_cast<size_t>(config.decisions))),
      grouper(config.block_size, cache.pool(0).size()),
      blocks(config.groups.size()) {
  for (int g = 0; g < cache.num_groups(); ++g) windowed |= cache.window(g) > 0;
  running.reserve(static_cast<size_t>(config.max_seqs));
  in_flight.reserve(static_cast<size_t>(config.depth));
  for (int i = 0; i < config.depth; ++i) spare.push_back(std::make_unique<StepSlot>(cache));
}

int32_t Scheduler::Impl::oldest_block(int group, int32_t position) const {
  const int window = cache.window(group);
  return window == 0 ? 0 : std::max(0, position - window + 1) / config.block_size;
}

std::optional<Refusal> Scheduler::Impl::check(const RequestSpec& spec, int64_t prompt) const {
  const auto n = static_cast<int64_t>(spec.seqs.size());
  if (prompt == 0)
    return Refusal{ErrorCode::kInvalidArgument, "prompt", "the prompt is empty: it needs at least one token", 0, 1};
  if (spec.max_new_tokens < 1) {
    return Refusal{ErrorCode::kInvalidArgument, "max_tokens",
                   cat("max_tokens must be at least 1, got ", spec.max_new_tokens), spec.max_new_tokens, 1};
  }
  if (spec.prefix_namespace == kSharedNamespace) {
    return Refusal{ErrorCode::kInvalidArgument, "namespace", "namespace 2**64 - 1 is that of shared prompts", 0, 0};
  }
  if (spec.shared_tokens < 0) {
    return Refusal{ErrorCode::kInvalidArgument, "shared_tokens",
                   cat("shared_tokens must be at least 0, got ", spec.shared_tokens), spec.shared_tokens, 0};
  }
  int64_t most = std::min(config.max_seqs, config.max_tokens_per_step);
  if (config.max_seqs_per_tenant > 0) most = std::min<int64_t>(most, config.max_seqs_per_tenant);
  if (n < 1 || n > most) {
    return Refusal{ErrorCode::kInvalidArgument, "n",
                   cat("n must be between 1 and ", most, ", the sequences that run at once, got ", n), n, most};
  }
  if (prompt >= config.max_model_len) {
    return Refusal{ErrorCode::kContextLength, "prompt",
                   cat("This model's maximum context length is ", config.max_model_len, " tokens, and the prompt has ",
                       prompt, " tokens, which leaves no room for an answer. Shorten the prompt."),
                   prompt, config.max_model_len};
  }
  for (int g = 0; g < cache.num_groups(); ++g) {
    // The block that holds the position after the prompt is written by every branch on its own.
    int64_t need = prompt / config.block_size + n;
    if (cache.window(g) > 0) need = std::min(need, (cache.window(g) + config.block_size - 2) / config.block_size + n);
    const int64_t total = cache.pool(g).size();
    if (need > total) {
      return Refusal{
          ErrorCode::kCapacity, "prompt",
          cat("the prompt has ", prompt, " tokens and needs ", need, " KV blocks of ", config.block_size,
              " tokens with the first token of each of ", n, n == 1 ? " answer" : " answers", "; the KV pool holds ",
              total * config.block_size, " tokens (", total, " blocks). Shorten the prompt or enlarge the pool."),
          prompt + 1, total * config.block_size};
    }
  }
  return std::nullopt;
}

void Scheduler::Impl::add(const RequestSpec& spec) {
  if (const auto refusal = check(spec, static_cast<int64_t>(spec.prompt.size())))
    throw Error(refusal->code, refusal->param, refusal->message);
  if (groups.contains(spec.id))
    throw Error(ErrorCode::kInvalidArgument, "id", cat("request ", spec.id, " is there already"));
  for (const auto& slot : in_flight) {
    for (const PlannedRow& row : slot->rows) {
      if (row.request == spec.id) {
        throw Error(ErrorCode::kInvalidArgument, "id", cat("request ", spec.id, " is cancelled but still in flight"));
      }
    }
  }
  for (const SeqId id : spec.seqs) {
    if (sequences.contains(id))
      throw Error(ErrorCode::kInvalidArgument, "seqs", cat("sequence ", id, " is there already"));
  }
  auto g = std::make_unique<SequenceGroup>();
  g->id = spec.id;
  g->ns = spec.prefix_namespace;
  g->shared_blocks = std::min(spec.shared_tokens, static_cast<int32_t>(spec.prompt.size())) / config.block_size;
  g->key = static_cast<int64_t>(next_step) + int64_t{spec.priority} * config.ageing_steps;
  g->priority = g->rank = spec.priority;
  g->arrival = arrivals;
  g->prompt_size = static_cast<int32_t>(spec.prompt.size());
  g->max_new_tokens = spec.max_new_tokens;
  g->prompt_logits = spec.prompt_logits;
  g->lockstep = spec.lockstep;
  g->source = spec.source;
  g->seq_ids = spec.seqs;

  auto seq = std::make_unique<Sequence>();
  seq->id = g->seq_ids[0];
  seq->group = g.get();
  // Room to grow without an allocation in the step loop, within reason.
  const int64_t longest =
      std::min<int64_t>(int64_t{g->prompt_size} + std::min(g->max_new_tokens, 4096), config.max_model_len);
  seq->tokens.reserve(longest);
  seq->tokens.assign(spec.prompt.begin(), spec.prompt.end());
  for (int i = 0; i < cache.num_groups(); ++i) {
    seq->tables.emplace_back(cache.pool(i));
    seq->tables.back().reserve(blocks_for(longest));
  }
  g->branches.push_back(std::move(seq));
  g->tenant = &waiting.join(spec.tenant);
  insert(std::move(g));
}

// All of it is known then; where it throws, nothing is, and its tenant has one request less.
void Scheduler::Impl::insert(std::unique_ptr<SequenceGroup> owned) {
  SequenceGroup* g = owned.get();
  Tenant& tenant = *g->tenant;
  const SeqId first = g->seq_ids[0];
  const bool alone = groups.empty() && in_flight.empty() && step_limit == 0 && chunk_limit == 0;
  try {
    sequences.insert(first, g->branches[0].get());
    groups.emplace(g->id, std::move(owned));
  } catch (...) {
    sequences.erase(first);
    waiting.leave(tenant);
    throw;
  }
  log->note(
      DecisionKind::kAdd, next_step, g->id,
      {g->prompt_size, g->max_new_tokens, g->priority, static_cast<int64_t>(tenant.id), static_cast<int64_t>(first),
       static_cast<int64_t>(g->seq_ids.size()), g->prompt_logits, g->lockstep, alone});
  ++arrivals;
  if (tenant.waiting.empty()) waiting.lift(tenant);
  // A step may be long in reaching the new request: who computes a block of it is told at once that it waits.
  int32_t common = config.block_size - 1;
  SequenceGroup* leader = config.prefix_caching ? find_leader(*g, common) : nullptr;
  if (leader != nullptr && leader->branches[0]->computed < common) lend_priority(*g, *leader);
  waiting.insert(g);
}

void Scheduler::Impl::cancel(RequestId id) {
  const auto it = groups.find(id);
  if (it == groups.end()) return;
  log->note(DecisionKind::kCancel, next_step, id);
  remove(*it->second);
}

void Scheduler::Impl::fail(SequenceGroup& g, Refusal why) {
  failures.push_back({g.id, std::move(why)});
  log->note(DecisionKind::kFail, next_step, g.id);
  remove(g);
}

// Rows of the group that are still in flight find no sequence when they are committed, and are dropped.
void Scheduler::Impl::remove(SequenceGroup& g) {
  for (const auto& seq : g.branches) {
    reset(*seq);
    sequences.erase(seq->id);
  }
  g.running ? running.erase(&g) : waiting.erase(&g);
  waiting.leave(*g.tenant);
  groups.erase(g.id);
}

void Scheduler::Impl::preempt(SequenceGroup& g) {
  log->note(DecisionKind::kPreempt, next_step, g.id, {g.branches[0]->computed});
  for (const auto& seq : g.branches) reset(*seq);
  running.erase(&g);
  g.running = g.evicting = false;
  g.preempted = true;
  g.rank = g.priority;
  g.blocked_room = -1;
  waiting.insert(&g);
  ++stats.preemptions;
}

void Scheduler::Impl::reset(Sequence& seq) {
  for (int g = 0; g < cache.num_groups(); ++g) {
    BlockTable& table = seq.tables[g];
    if (seq.group->rows_in_flight > 0) {
      while (table.size() > 0) retire(*seq.group, g, table.pop_back());
    }
    table.clear();
  }
  cache.index().unhold(std::exchange(seq.node, kNoNode));
  seq.indexed = 0;
  seq.computed = seq.planned = seq.filled = 0;
  seq.foreign_at = -1;
  seq.pending = 0;
  seq.started = false;
}

// A step in flight may still name the block: it keeps it until its end.
void Scheduler::Impl::retire(const SequenceGroup& g, int kv_group, BlockRef block) {
  if (block && g.rows_in_flight > 0 && !in_flight.empty()) in_flight.back()->retired[kv_group].hold(std::move(block));
}

void Scheduler::Impl::set_rank(SequenceGroup& g, int32_t rank) {
  if (g.rank == rank) return;
  running.erase(&g);
  g.rank = rank;
  running.insert(&g);
}

SchedulerStats Scheduler::Impl::current_stats() const {
  SchedulerStats s = stats;
  s.waiting = static_cast<int>(waiting.size());
  s.running = static_cast<int>(running.size());
  s.queue_waits_for = waiting.empty() ? WaitReason::kNextStep : admission_stop;
  for (const SequenceGroup* g : running) {
    for (const auto& seq : g->branches) {
      for (const BlockTable& table : seq->tables) s.table_entries += table.size() - table.first();
    }
  }
  for (int g = 0; g < cache.num_groups(); ++g) {
    s.total_blocks += cache.pool(g).size();
    s.free_blocks += cache.pool(g).num_free();
    s.live_blocks += cache.pool(g).num_live();
    s.cached_blocks += cache.pool(g).num_cached();
  }
  return s;
}

Scheduler::Scheduler(SchedulerConfig config) : impl_(std::make_unique<Impl>(std::move(config))) {}
Scheduler::~Scheduler() = default;
std::optional<Refusal> Scheduler::check(const RequestSpec& spec) const {
  return check(spec, static_cast<int64_t>(spec.prompt.size()));
}

std::optional<Refusal> Scheduler::check(const RequestSpec& spec, int64_t prompt) const {
  return impl_->check(spec, prompt);
}
void Scheduler::add(const RequestSpec& spec) { impl_->add(spec); }
void Scheduler::cancel(RequestId id) { impl_->cancel(id); }
bool Scheduler::has_work() const { return !impl_->groups.empty() || !impl_->in_flight.empty(); }
std::span<const int32_t> Scheduler::tokens(SeqId id) const {
  const Sequence* seq = impl_->find_sequence(id);
  return seq == nullptr ? std::span<const int32_t>() : seq->tokens;
}
const StepPlan* Scheduler::plan() { return impl_->plan(); }
bool Scheduler::can_plan_ahead() const { return impl_->can_plan_ahead(); }
void Scheduler::commit(StepId step, const StepOutcome& outcome) { impl_->commit(step, outcome); }
void Scheduler::rollback(StepId step) { impl_->rollback(step); }
void Scheduler::limit_steps(int32_t tokens, int32_t chunk) { impl_->limit_steps(tokens, chunk); }
std::vector<Admission> Scheduler::take_admissions() { return std::exchange(impl_->admissions, {}); }
std::vector<RequestFailure> Scheduler::take_failures() { return std::exchange(impl_->failures, {}); }
SchedulerStats Scheduler::stats() const { return impl_->current_stats(); }
SchedulerSnapshot Scheduler::snapshot() const { return impl_->snapshot(); }
std::shared_ptr<const DecisionLog> Scheduler::decisions() const { return impl_->log; }
void Scheduler::audit() const { impl_->audit(); }

}  // namespace octavo
