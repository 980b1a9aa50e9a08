// What a finished step changes: positions, the prefix index, branches; and how a failed step is undone.
#include <algorithm>

#include "base/format.h"
#include "base/reserve.h"
#include "sched/scheduler_impl.h"

namespace octavo {

void Scheduler::Impl::commit(StepId step, const StepOutcome& outcome) {
  if (in_flight.empty() || in_flight.front()->plan.step != step) {
    throw Error(ErrorCode::kInvalidArgument, "step",
                cat("commits are in order: step ", step, " is not the oldest in flight",
                    in_flight.empty() ? "" : cat(", that is step ", in_flight.front()->plan.step)));
  }
  prefetch(*in_flight.front());
  check_outcome(*in_flight.front(), outcome);
  CommitRoom room = reserve_commit(*in_flight.front(), outcome);
  // Nothing throws from here on.
  log->note(DecisionKind::kCommit, step, 0);
  std::unique_ptr<StepSlot> slot = std::move(in_flight.front());
  in_flight.erase(in_flight.begin());

  for (const PlannedRow& row : slot->rows) {
    if (Sequence* seq = find_sequence(row.seq)) --seq->group->rows_in_flight;
  }
  for (const RowFault& fault : outcome.faults) {
    Sequence* seq = find_sequence(fault.seq);
    if (seq == nullptr) continue;
    log->note(DecisionKind::kFault, step, seq->group->id, {static_cast<int64_t>(fault.seq)});
    remove(*seq->group);
  }
  for (const PlannedRow& row : slot->rows) advance(row);
  apply(outcome, room);
  // A sampled sequence that no outcome names as child ends here.
  for (const PlannedRow& row : slot->rows) {
    Sequence* seq = row.sampled ? find_sequence(row.seq) : nullptr;
    if (seq == nullptr) continue;
    if (std::exchange(seq->sampled, Sequence::Sampled::kNo) == Sequence::Sampled::kUnnamed) end_branch(*seq);
  }
  slot->clear();
  spare.push_back(std::move(slot));
}

Scheduler::Impl::CommitRoom Scheduler::Impl::reserve_commit(const StepSlot& slot, const StepOutcome& outcome) {
  CommitRoom room;
  const auto faulty = [&](const SequenceGroup* g) {
    return std::ranges::any_of(outcome.faults, [&](const RowFault& fault) {
      const Sequence* seq = find_sequence(fault.seq);
      return seq != nullptr && seq->group == g;
    });
  };
  int32_t nodes = 0;
  for (const PlannedRow& row : slot.rows) {
    const Sequence* seq = find_sequence(row.seq);
    if (seq == nullptr || faulty(seq->group)) continue;
    nodes += std::max(0, (row.first_pos + row.n_tokens) / config.block_size - seq->indexed) + 1;  // and a tail
  }
  if (config.prefix_caching) cache.index().reserve(nodes);

  for (const Outcome& o : outcome.outcomes) {
    Sequence* parent = find_sequence(o.parent);
    if (parent == nullptr) continue;
    const size_t new_tokens = 1 + static_cast<size_t>(o.num_forced);
    if (o.child == o.parent) {
      reserve_more(parent->tokens, new_tokens);
    } else {
      room.children.push_back(make_child(*parent, o.child, new_tokens));
    }
    const auto length = static_cast<int64_t>(parent->tokens.size() + new_tokens);
    if (o.finished || length < config.max_model_len) continue;
    const auto message =
        cat("sequence ", o.child, " reached ", length, " tokens and was not ended: the maximum context length is ",
            config.max_model_len, " tokens");
    room.overlong.push_back(
        {o.child, {ErrorCode::kContextLength, "max_tokens", message, length, config.max_model_len}});
  }
  for (const auto& child : room.children) {
    const SequenceGroup* g = child->group;
    reserve_more(child->group->branches,
                 std::ranges::count_if(room.children, [&](const auto& other) { return other->group == g; }));
  }
  sequences.reserve_more(room.children.size());
  reserve_more(failures, room.overlong.size());
  return room;
}

// A sequence that has room for what its parent will hold.
std::unique_ptr<Sequence> Scheduler::Impl::make_child(const Sequence& parent, SeqId id, size_t new_tokens) const {
  auto child = std::make_unique<Sequence>();
  child->id = id;
  child->group = parent.group;
  child->tokens.reserve(std::max(parent.tokens.capacity(), parent.tokens.size() + new_tokens));
  child->tables.reserve(parent.tables.size());
  for (const BlockTable& table : parent.tables) {
    child->tables.emplace_back(table.pool());
    child->tables.back().reserve(table.size());
  }
  return child;
}

// Everything that can be wrong with an outcome is found before anything changes.
void Scheduler::Impl::check_outcome(const StepSlot& slot, const StepOutcome& outcome) const {
  const auto& all = outcome.outcomes;
  const auto wrong = [](const std::string& what) { throw Error(ErrorCode::kInvalidArgument, "outcome", what); };
  for (size_t i = 0; i < all.size(); ++i) {
    const Outcome& o = all[i];
    if (o.forced_first < 0 || o.num_forced < 0 ||
        o.forced_first + int64_t{o.num_forced} > static_cast<int64_t>(outcome.forced.size()))
      wrong(cat("sequence ", o.child, " has forced tokens that the outcome does not hold"));
    if (const Sequence* seq = find_sequence(o.parent); seq != nullptr && o.num_forced > 0 && seq->pending > 1)
      wrong(cat("sequence ", o.parent, " has forced tokens where its next one is in flight"));
    if (find_sequence(o.parent) == nullptr) continue;  // cancelled or stopped meanwhile
    const auto sampled = [&](const PlannedRow& row) { return row.sampled && row.seq == o.parent; };
    if (i >= slot.rows.size() || !sampled(slot.rows[i])) {  // outcomes usually stand in the order of the rows
      if (std::ranges::none_of(slot.rows, sampled)) {
        wrong(cat("sequence ", o.parent, " was not sampled in step ", slot.plan.step));
      }
    }
    if (o.child == o.parent) continue;
    if (find_sequence(o.child) != nullptr)
      wrong(cat("child ", o.child, " of sequence ", o.parent, " is there already"));
    for (size_t k = 0; k < i; ++k) {
      if (all[k].child == o.child) wrong(cat("two outcomes name the child ", o.child));
    }
  }
}

void Scheduler::Impl::advance(const PlannedRow& row) {
  Sequence* seq = find_sequence(row.seq);
  stats.tokens_computed += row.n_tokens;
  if (seq == nullptr) return;
  SequenceGroup& g = *seq->group;
  seq->computed = row.first_pos + row.n_tokens;
  seq->filled = std::max(seq->filled, seq->computed);
  seq->foreign_at = -1;
  g.logits_done = std::max(g.logits_done, std::min(seq->computed, g.prompt_size));
  if (row.sampled) {
    --seq->pending;
    seq->sampled = Sequence::Sampled::kUnnamed;
    if (g.rank != g.priority) set_rank(g, g.priority);  // its followers have what they waited for
  }
  publish(*seq);
  leave_window(*seq);
}

void Scheduler::Impl::publish(Sequence& seq) {
  if (!config.prefix_caching) return;
  PrefixIndex& index = cache.index();
  const int32_t size = config.block_size;
  const auto own_blocks = [&](int32_t at) {
    for (int g = 0; g < cache.num_groups(); ++g) blocks[g] = seq.tables[g][at];
  };
  while ((seq.indexed + 1) * size <= seq.computed) {
    const int32_t at = seq.indexed;
    own_blocks(at);
    const std::span<const int32_t> tokens(seq.tokens.data() + at * size, size);
    const NodeId node = index.insert(seq.node, seq.group->ns_of(at), tokens, blocks);
    for (int g = 0; g < cache.num_groups(); ++g) {
      const BlockId known = index.block(node, g);
      if (blocks[g] == kNoBlock || known == kNoBlock || known == blocks[g]) continue;
      retire(*seq.group, g, seq.tables[g].replace(at, cache.pool(g).share(known)));  // equal content: held once
    }
    index.hold(node);
    index.unhold(seq.node);
    seq.node = node;
    ++seq.indexed;
  }
  const int32_t rest = seq.computed % size;
  if (rest == 0 || seq.indexed != seq.computed / size) return;
  own_blocks(seq.indexed);
  const std::span<const int32_t> tokens(seq.tokens.data() + seq.indexed * size, rest);
  index.insert_tail(seq.node, seq.group->ns_of(seq.indexed), tokens, blocks);
}

void Scheduler::Impl::leave_window(Sequence& seq) {
  for (int g = 0; g < cache.num_groups() && windowed; ++g) {
    BlockTable& table = seq.tables[g];
    const int32_t oldest = std::min(oldest_block(g, seq.computed), table.size());
    while (table.first() < oldest) retire(*seq.group, g, table.drop_front());
  }
}

// All of a step's outcomes together: forks first, from the parents as they were sampled.
void Scheduler::Impl::apply(const StepOutcome& outcome, CommitRoom& room) {
  auto child = room.children.begin();
  for (const Outcome& o : outcome.outcomes) {
    const bool made = child != room.children.end() && (*child)->id == o.child;
    const auto own = made ? child++ : child;
    Sequence* parent = find_sequence(o.parent);
    if (parent == nullptr) continue;
    parent->group->forked = true;
    if (o.child == o.parent) {
      parent->sampled = Sequence::Sampled::kGoesOn;
    } else {
      fork(*parent, std::move(*own));
    }
  }
  for (const Outcome& o : outcome.outcomes) {
    Sequence* child = find_sequence(o.child);
    if (child == nullptr) continue;
    child->tokens.push_back(o.token);
    const auto forced = outcome.forced.begin() + o.forced_first;
    child->tokens.insert(child->tokens.end(), forced, forced + o.num_forced);
    SequenceGroup& g = *child->group;
    if (o.num_forced > 0)
      log->note(DecisionKind::kForced, next_step, g.id, {static_cast<int64_t>(o.child), o.num_forced});
    if (o.finished) {
      end_branch(*child);
    } else if (static_cast<int32_t>(child->tokens.size()) >= config.max_model_len) {
      fail(g, std::move(std::ranges::find(room.overlong, o.child, &CommitRoom::Overlong::first)->second));
    }
  }
}

void Scheduler::Impl::fork(Sequence& parent, std::unique_ptr<Sequence> child) {
  child->tokens.assign(parent.tokens.begin(), parent.tokens.end());
  // Blocks that a step in flight appended belong to the parent alone.
  for (size_t g = 0; g < parent.tables.size(); ++g)
    child->tables[g].share_front(parent.tables[g], blocks_for(parent.computed));
  child->started = true;
  child->computed = child->planned = child->filled = parent.computed;
  if (parent.planned > parent.computed) child->foreign_at = parent.computed / config.block_size;
  child->node = parent.node;
  cache.index().hold(child->node);
  child->indexed = parent.indexed;
  sequences.insert(child->id, child.get());
  parent.group->branches.push_back(std::move(child));
}

void Scheduler::Impl::end_branch(Sequence& seq) {
  SequenceGroup& g = *seq.group;
  log->note(DecisionKind::kEnd, next_step, g.id, {static_cast<int64_t>(seq.id)});
  if (g.branches.size() == 1) {
    remove(g);
    return;
  }
  reset(seq);
  sequences.erase(seq.id);
  std::erase_if(g.branches, [&](const auto& branch) { return branch.get() == &seq; });
}

void Scheduler::Impl::rollback(StepId step) {
  const auto first = std::ranges::find_if(in_flight, [&](const auto& slot) { return slot->plan.step == step; });
  if (first == in_flight.end()) {
    throw Error(ErrorCode::kInvalidArgument, "step", cat("step ", step, " is not in flight and cannot be rolled back"));
  }
  log->note(DecisionKind::kRollback, step, 0);
  const auto keep = first - in_flight.begin();
  while (static_cast<std::ptrdiff_t>(in_flight.size()) > keep) {
    std::unique_ptr<StepSlot> slot = std::move(in_flight.back());
    in_flight.pop_back();
    undo_rows(*slot, 0);
    slot->clear();
    spare.push_back(std::move(slot));
  }
}

void Scheduler::Impl::limit_steps(int32_t tokens, int32_t chunk) {
  step_limit = tokens;
  chunk_limit = chunk;
  log->note(DecisionKind::kLimit, next_step, 0, {tokens, chunk});
}

}  // namespace octavo
