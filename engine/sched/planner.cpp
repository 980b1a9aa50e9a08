// Who runs in the next step: decodes first, then the prompts of running requests, then new ones.
#include <algorithm>

#include "base/format.h"
#include "sched/scheduler_impl.h"

namespace octavo {

const StepPlan* Scheduler::Impl::plan() {
  if (static_cast<int>(in_flight.size()) == config.depth) return nullptr;
  StepSlot& slot = *spare.back();
  try {
    if (!fill(slot)) return nullptr;
  } catch (...) {
    undo_rows(slot, 0);
    throw;
  }
  ++next_step;
  in_flight.push_back(std::move(spare.back()));
  spare.pop_back();
  return &in_flight.back()->plan;
}

bool Scheduler::Impl::fill(StepSlot& slot) {
  while (true) {
    for (size_t i = running.size(); i-- > 0;) {
      if (running[i]->evicting && running[i]->rows_in_flight == 0) preempt(*running[i]);
    }
    slot.clear();
    slot.plan.step = next_step;
    build(slot);
    if (must_leave_first(slot)) {
      undo_rows(slot, 0);
      continue;
    }
    if (!slot.rows.empty()) break;
    if (!in_flight.empty() || !unblock()) {
      note_plan(slot);
      return false;
    }
  }
  grouper.group(slot.plan);
  note_plan(slot);
  return true;
}

// Somebody gives way while the plan is made, and nothing but its row in this plan holds it back: without it the request
// that it makes room for need not wait for a step more. Each time one request less is left of those that ran before.
bool Scheduler::Impl::must_leave_first(const StepSlot& slot) const {
  if (!in_flight.empty()) return false;
  return std::ranges::any_of(running, [&](const SequenceGroup* g) {
    const auto enters = [&](const PlannedRow& row) { return row.admitted && row.request == g->id; };
    return g->evicting && std::ranges::none_of(slot.rows, enters);
  });
}

bool Scheduler::Impl::can_plan_ahead() const {
  const auto waits = [](const PlannedRow& row) { return row.sampled && row.lockstep; };
  return std::ranges::none_of(in_flight, [&](const auto& slot) { return std::ranges::any_of(slot->rows, waits); });
}

// One without rows too: what was tried counts later.
void Scheduler::Impl::note_plan(const StepSlot& slot) {
  log->note(DecisionKind::kPlan, next_step, 0,
            {static_cast<int64_t>(slot.rows.size()), static_cast<int64_t>(slot.plan.tokens.size()),
             static_cast<int64_t>(slot.plan.samples.size()), static_cast<int64_t>(admission_stop)});
}

void Scheduler::Impl::build(StepSlot& slot) {
  budget = config.max_tokens_per_step;
  if (step_limit > 0) {
    int32_t widest = 1;  // the branches of a request run in one step
    for (const SequenceGroup* g : running) widest = std::max(widest, g->width());
    budget = std::min(budget, std::max(step_limit, widest));
  }
  short_of_blocks = false;
  for (size_t i = 0; i < running.size() && budget > 0;) {
    SequenceGroup* g = running[i];
    if (!g->evicting && decode_ready(*g)) plan_decode(slot, *g);
    if (i < running.size() && running[i] == g) ++i;
  }
  arrivals_seen = arrivals;
  limit_prompts();
  plan_prompts(slot);
}

// A step that has begun is not interrupted, so what one tenant's prompts may take of it is what another waits for.
void Scheduler::Impl::limit_prompts() {
  constexpr StepId kMemory = 1024;
  if (config.shared_prompt_tokens == 0) return;
  if (waiting.active() > 1) shared_until = next_step + kMemory;
  if (next_step < shared_until) budget = std::min(budget, config.shared_prompt_tokens);
}

// Prompts of running requests and new ones: the tenants by turns, the one first that was served least.
void Scheduler::Impl::plan_prompts(StepSlot& slot) {
  for (auto& [id, tenant] : waiting.tenants()) tenant.prefills.clear();
  for (SequenceGroup* g : running) {
    if (!g->evicting && prefilling(*g)) g->tenant->prefills.push_back(g);
  }
  waiting.open_turns();
  admission_open = false;
  admission_stop = WaitReason::kNextStep;
  bool admitting = true;
  while (budget > 0) {
    Tenant* tenant = waiting.next();
    if (tenant == nullptr) break;
    if (tenant->next_prefill < tenant->prefills.size()) {
      SequenceGroup& g = *tenant->prefills[tenant->next_prefill++];
      if (admission_open) promise(g, -1);
      plan_prefill(slot, g);
      if (admission_open && prefilling(g)) promise(g, 1);
      waiting.again(*tenant);
    } else if (admitting) {
      if (short_of_blocks) {
        admission_stop = WaitReason::kNoBlocks;
        admitting = false;
      } else {
        admitting = admit_next(slot, *tenant);
      }
    }
  }
  if (admitting && budget == 0 && waiting.unseen()) admission_stop = WaitReason::kTokenBudget;
}

bool Scheduler::Impl::decode_ready(const SequenceGroup& g) const {
  for (const auto& seq : g.branches) {
    if (!seq->started || seq->remaining() != 1) return false;
    if (seq->pending == 0) continue;
    if (g.in_lockstep()) return false;
    // The token in flight is the last one: do not plan past it.
    if (seq->length() - g.prompt_size >= g.max_new_tokens || seq->length() >= config.max_model_len) return false;
  }
  return true;
}

bool Scheduler::Impl::prefilling(const SequenceGroup& g) const {
  return std::ranges::any_of(g.branches, [](const auto& seq) { return !seq->started || seq->remaining() > 1; });
}

// All branches or none.
void Scheduler::Impl::plan_decode(StepSlot& slot, SequenceGroup& g) {
  if (static_cast<int32_t>(g.branches.size()) > budget) return;
  const size_t mark = slot.rows.size();
  for (const auto& seq : g.branches) {
    const Room room = make_room(g, *seq, 1);
    if (room == Room::kYes) {
      plan_row(slot, *seq, 1);
      continue;
    }
    undo_rows(slot, mark);
    short_of_blocks = true;
    if (room == Room::kSelf) preempt(g);
    return;
  }
}

// Preempts until `seq` can take n more tokens.
Scheduler::Impl::Room Scheduler::Impl::make_room(SequenceGroup& g, const Sequence& seq, int32_t n) {
  while (fitting(seq, n) < n) {
    if (std::ranges::any_of(running, [](const SequenceGroup* r) { return r->evicting; })) return Room::kLater;
    SequenceGroup& victim = this->victim();
    if (&victim == &g && running.size() == 1) return Room::kLater;  // alone: unblock() decides
    if (victim.rows_in_flight > 0) {
      evict(&victim, g);  // no more rows; its blocks come back at the next plan that finds it at rest
      return Room::kLater;
    }
    if (&victim == &g) return Room::kSelf;
    preempt(victim);
  }
  return Room::kYes;
}

// Others left fewer tokens of this step than `left`, which it could have taken.
void Scheduler::Impl::note_cut(SequenceGroup& g, int32_t left) const {
  if (budget < config.max_tokens_per_step && budget < left) g.cut_short_in = next_step;
}

// The next chunk of a prompt, or of a history that is recomputed. Branches that are recomputed stop before their
// last token, so that all of them are sampled in one step.
void Scheduler::Impl::plan_prefill(StepSlot& slot, SequenceGroup& g) {
  for (size_t i = 0; i < g.branches.size() && budget > 0; ++i) {
    Sequence& seq = *g.branches[i];
    if (!seq.started) {
      // Siblings have their prompt in common at least: take over what the most similar one computed.
      const Sequence* lead = nullptr;
      int32_t common = 0;
      for (size_t k = 0; k < i; ++k) {
        const auto& other = g.branches[k]->tokens;
        const auto equal = static_cast<int32_t>(std::ranges::mismatch(other, seq.tokens).in1 - other.begin());
        if (equal > common) lead = g.branches[k].get(), common = equal;
      }
      find_prefix(seq);
      start_row(slot, seq, lead, common);
    } else {
      const int32_t left = seq.remaining() - (g.branches.size() > 1 ? 1 : 0);
      note_cut(g, left);
      const int32_t n = fitting(seq, std::min(chunk(), left));
      if (n > 0) plan_row(slot, seq, n);
    }
    if (!seq.started || seq.remaining() > 1) {
      short_of_blocks |= budget > 0 && chunk_limit == 0;
      return;
    }
  }
}

// Nothing is in flight and no row could be planned. One request less holds blocks after this.
bool Scheduler::Impl::unblock() {
  if (running.size() > 1) {
    preempt(victim());
    return true;
  }
  SequenceGroup* g = !running.empty() ? running.back() : waiting.front();
  if (g == nullptr) return false;
  const int tight = tightest_group();
  const int64_t total = cache.pool(tight).size();
  int64_t length = 0;
  for (const auto& seq : g->branches) length = std::max<int64_t>(length, seq->length());
  fail(*g, {ErrorCode::kCapacity, "kv_cache",
            cat("the request has ", length, " tokens in ", g->branches.size(),
                g->branches.size() == 1 ? " branch" : " branches", " and cannot go on: it alone holds ",
                cache.pool(tight).num_live(), " of ", total, " KV blocks, and the pool holds ",
                total * config.block_size, " tokens. Enlarge the pool or ask for fewer tokens."),
            length, total * config.block_size});
  return true;
}

}  // namespace octavo
