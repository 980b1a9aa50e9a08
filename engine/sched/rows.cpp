// What a row adds to a plan: reserved blocks, copies, slots, tables, samples; and how it is undone.
#include <algorithm>

#include "base/reserve.h"
#include "sched/scheduler_impl.h"

namespace octavo {

// Writing begins where the sequence's tables hold nothing yet; blocks that came filled from others are left alone.
static int32_t first_write(const Sequence& seq) { return std::max(seq.planned, seq.filled); }

bool Scheduler::Impl::must_copy(const Sequence& seq, int group, int32_t write) const {
  const BlockTable& table = seq.tables[group];
  const int32_t at = write / config.block_size;
  return at < table.size() && (table.shared(at) || at == seq.foreign_at);
}

int32_t Scheduler::Impl::fitting(const Sequence& seq, int32_t n) const {
  const int32_t write = first_write(seq);
  int64_t fits = n;
  for (int g = 0; g < cache.num_groups() && fits > 0; ++g) {
    const BlockTable& table = seq.tables[g];
    int64_t room = cache.available(g);
    if (write < seq.planned + n && must_copy(seq, g, write) && --room < 0) {
      fits = std::min<int64_t>(fits, std::max(0, write - seq.planned));
      continue;
    }
    fits = std::min(fits, (table.size() + room) * config.block_size - seq.planned);
  }
  return static_cast<int32_t>(std::max<int64_t>(fits, 0));
}

void Scheduler::Impl::reserve_blocks(StepSlot& slot, Sequence& seq, int32_t n) {
  const int32_t write = first_write(seq);
  const int32_t end = seq.planned + n;
  for (int g = 0; g < cache.num_groups(); ++g) {
    BlockTable& table = seq.tables[g];
    const int32_t at = write / config.block_size;
    if (write < end && must_copy(seq, g, write)) {
      CopyOnWrite copy = table.copy_on_write(at, write % config.block_size, cache.allocate(g));
      if (copy.slots > 0) slot.plan.copies.push_back({g, copy.src, copy.dst, copy.slots});
      slot.changes.push_back({seq.id, g, at, std::move(copy.source)});
    }
    while (table.size() < blocks_for(end)) {
      slot.changes.push_back({seq.id, g, table.size(), {}});
      table.append(cache.allocate(g));
    }
  }
}

void Scheduler::Impl::reserve_row(StepSlot& slot, Sequence& seq, int32_t n) const {
  StepPlan& plan = slot.plan;
  const size_t groups = seq.tables.size();
  const int32_t blocks = blocks_for(seq.planned + n);
  reserve_more(slot.rows, 1);
  reserve_more(plan.rows, 1);
  reserve_more(plan.tokens, static_cast<size_t>(n));
  reserve_more(plan.samples, seq.group->seq_ids.size());
  reserve_more(plan.copies, groups);
  size_t changes = groups;  // a copy each, and what is appended
  for (size_t g = 0; g < groups; ++g) {
    changes += static_cast<size_t>(std::max(0, blocks - seq.tables[g].size()));
    seq.tables[g].reserve(blocks);
    reserve_more(plan.groups[g].slots, static_cast<size_t>(n));
    reserve_more(plan.groups[g].tables, static_cast<size_t>(blocks));
    reserve_more(plan.groups[g].table_offsets, 1);
  }
  reserve_more(slot.changes, changes);
}

// Nothing throws once there is room.
void Scheduler::Impl::plan_row(StepSlot& slot, Sequence& seq, int32_t n) {
  reserve_row(slot, seq, n);
  StepPlan& plan = slot.plan;
  SequenceGroup& group = *seq.group;
  PlannedRow undo;
  undo.seq = seq.id;
  undo.request = group.id;
  undo.first_pos = seq.planned;
  undo.n_tokens = n;
  undo.pending_step = seq.pending_step;
  undo.pending_sample = seq.pending_sample;
  undo.last_step = seq.last_step;
  undo.planned_before = seq.planned_before;
  undo.changes = slot.changes.size();
  undo.sources = slot.sources.size();
  undo.copies = plan.copies.size();
  undo.samples = plan.samples.size();
  reserve_blocks(slot, seq, n);

  PlanRow row;
  row.seq = seq.id;
  row.first_pos = seq.planned;
  row.n_tokens = n;
  row.token_offset = static_cast<int32_t>(plan.tokens.size());
  const auto known = static_cast<int32_t>(seq.tokens.size());
  if (seq.planned < known) {
    plan.tokens.insert(plan.tokens.end(), seq.tokens.begin() + seq.planned, seq.tokens.begin() + seq.planned + n);
  } else {
    plan.tokens.push_back(-1);  // drawn by a step in flight
    row.from_step = seq.pending_step;
    row.from_row = seq.pending_sample;
  }

  const int32_t end = seq.planned + n;
  const int32_t size = config.block_size;
  for (int g = 0; g < cache.num_groups(); ++g) {
    StepPlan::Group& out = plan.groups[g];
    const BlockId* table = seq.tables[g].data();
    for (int32_t p = seq.planned; p < end; ++p)
      out.slots.push_back(p < seq.filled ? -1 : table[p / size] * size + p % size);
    out.tables.insert(out.tables.end(), table, table + blocks_for(end));
    out.table_offsets.push_back(static_cast<int32_t>(out.tables.size()));
  }

  const bool samples = end == seq.length();
  if (samples) row.logits = LogitsWanted::kLast;
  const bool unscored = group.prompt_logits && group.logits_done < group.prompt_size && seq.planned < group.prompt_size;
  if (unscored && end > group.logits_done) {
    row.logits = LogitsWanted::kRange;
    row.logits_first = std::max(0, group.logits_done - seq.planned);
  }
  if (samples) {
    const auto index = static_cast<int32_t>(plan.rows.size());
    const auto sample = static_cast<int32_t>(plan.samples.size());
    const int32_t token = row.token_offset + n - 1;
    const int32_t position = seq.length();
    if (group.forked) {
      plan.samples.push_back({index, token, seq.id, position});
    } else {
      for (const SeqId state : group.seq_ids) plan.samples.push_back({index, token, state, position});
    }
    undo.sampled = true;
    undo.lockstep = group.in_lockstep();
    seq.pending = seq.pending + 1;
    seq.pending_step = plan.step;
    seq.pending_sample = sample;
  }
  plan.rows.push_back(row);

  if (seq.last_step != plan.step) {
    seq.last_step = plan.step;
    seq.planned_before = seq.planned;
  }
  seq.planned = end;
  ++group.rows_in_flight;
  budget -= n;
  group.tenant->served += n;
  slot.rows.push_back(undo);
}

void Scheduler::Impl::undo_rows(StepSlot& slot, size_t keep) {
  while (slot.rows.size() > keep) undo_row(slot);
}

void Scheduler::Impl::undo_row(StepSlot& slot) {
  StepPlan& plan = slot.plan;
  const PlannedRow undo = slot.rows.back();
  Sequence* seq = find_sequence(undo.seq);
  for (; slot.changes.size() > undo.changes; slot.changes.pop_back()) {
    TableChange& change = slot.changes.back();
    if (seq == nullptr) continue;
    BlockTable& table = seq->tables[change.group];
    if (change.previous) {
      table.replace(change.index, table.pool().share(change.previous.id()));
    } else {
      table.pop_back();
    }
  }
  if (seq != nullptr) {
    SequenceGroup& group = *seq->group;
    --group.rows_in_flight;
    group.tenant->served -= undo.n_tokens;
    seq->planned = undo.first_pos;
    seq->last_step = undo.last_step;
    seq->planned_before = undo.planned_before;
    if (undo.sampled) --seq->pending;
    seq->pending_step = undo.pending_step;
    seq->pending_sample = undo.pending_sample;
    if (undo.started) reset(*seq);
    if (undo.admitted) {
      running.erase(&group);
      group.running = group.evicting = false;
      group.rank = group.priority;
      waiting.insert(&group);
    }
  }
  budget += undo.n_tokens;
  const PlanRow& row = plan.rows.back();
  plan.tokens.resize(row.token_offset);
  for (StepPlan::Group& g : plan.groups) {
    g.slots.resize(row.token_offset);
    g.table_offsets.pop_back();
    g.tables.resize(g.table_offsets.back());
  }
  plan.copies.resize(undo.copies);
  plan.samples.resize(undo.samples);
  plan.rows.pop_back();
  slot.sources.resize(undo.sources);
  slot.rows.pop_back();
}

}  // namespace octavo
