// Where a sequence starts (cached blocks, blocks of a request that computes the same prefix, copies below the block)
// and whether a waiting request may enter the running set.
#include <algorithm>

#include "base/reserve.h"
#include "sched/scheduler_impl.h"

namespace octavo {

// Branches of one request are recomputed up to their last token but one: the last runs for all of them in one step.
static int32_t last_start(const Sequence& seq) { return seq.length() - (seq.group->branches.size() > 1 ? 2 : 1); }

// Some rows of the prompt are still to be scored: they are computed although their blocks are there.
static bool wants_prompt_logits(const SequenceGroup& g) { return g.prompt_logits && g.logits_done < g.prompt_size; }

// How much of the sequence may come from others. A window group holds what the next position needs and nothing
// before it, so there a sequence cannot start before the end of what it takes over.
int32_t Scheduler::Impl::takeover_limit(const Sequence& seq) const {
  if (!windowed) return seq.length();
  const SequenceGroup& g = *seq.group;
  return wants_prompt_logits(g) ? 0 : last_start(seq);
}

void Scheduler::Impl::find_prefix(const Sequence& seq) {
  const int32_t limit = config.prefix_caching ? takeover_limit(seq) : 0;
  const SequenceGroup& g = *seq.group;
  cache.index().find(kSharedNamespace, g.ns, g.shared_blocks, {seq.tokens.data(), size_t(limit)}, match);
}

// The first `common` tokens of `lead`, as far as they may be shared in the step that is being planned: full blocks
// that this step writes count, since K and V are written before attention; a copy runs before the step and can only
// read what earlier steps wrote.
int32_t Scheduler::Impl::shareable(const Sequence& lead, int32_t common) const {
  if (!lead.started) return 0;
  const int32_t full = std::min(common, lead.planned) / config.block_size * config.block_size;
  const int32_t length = std::max(full, std::min(common, lead.written(next_step)));
  for (int g = 0; g < cache.num_groups(); ++g) {
    if (lead.tables[g].first() > oldest_block(g, length)) return 0;
  }
  return length;
}

bool Scheduler::Impl::ready(const SequenceGroup& g, const Sequence& lead) const {
  return lead.written(next_step) >= g.common || (lead.planned >= g.common && g.common % config.block_size == 0);
}

// The sequence that `g` is a fork of, while it holds blocks that may be shared.
const Sequence* Scheduler::Impl::running_source(SequenceGroup& g) const {
  const Sequence* source = g.source == 0 ? nullptr : find_sequence(g.source);
  if (source == nullptr || !source->started || source->group->evicting || source->group->ns != g.ns) return nullptr;
  const auto& own = g.branches[0]->tokens;
  g.common = static_cast<int32_t>(std::ranges::mismatch(own, source->tokens).in1 - own.begin());
  return source;
}

// True: `g` waits for a running request that computes at least a block more of its prompt than the `matched` tokens
// that are cached. False: it starts now, from `source` when that is not null.
bool Scheduler::Impl::follow(SequenceGroup& g, const Sequence*& source) {
  const Sequence& seq = *g.branches[0];
  if (!config.prefix_caching || wants_prompt_logits(g)) return false;
  const int32_t matched = match.tokens(config.block_size);
  int32_t common = matched;
  SequenceGroup* best = find_leader(g, common);
  const int32_t gain = common - matched;
  const bool worth = gain >= config.block_size || (2 * gain >= seq.length() - matched && 2 * gain >= config.block_size);
  if (best == nullptr || !worth) return false;
  g.common = common;
  if (ready(g, *best->branches[0])) {
    source = best->branches[0].get();
    return false;
  }
  g.leader = best->id;
  lend_priority(g, *best);
  return true;
}

// The running request that is computing the longest prefix of `g`, if that is longer than `common`.
SequenceGroup* Scheduler::Impl::find_leader(const SequenceGroup& g, int32_t& common) const {
  const Sequence& seq = *g.branches[0];
  SequenceGroup* best = nullptr;
  for (SequenceGroup* r : running) {
    const Sequence& lead = *r->branches[0];
    if (r->ns != g.ns || r->tenant != g.tenant || r->evicting || !lead.started) continue;
    if (static_cast<int32_t>(lead.tokens.size()) - lead.computed <= 1 || lead.tokens[0] != seq.tokens[0]) continue;
    const auto equal = std::ranges::mismatch(seq.tokens, lead.tokens).in1 - seq.tokens.begin();
    if (equal > common) best = r, common = static_cast<int32_t>(equal);
  }
  return best;
}

void Scheduler::Impl::lend_priority(const SequenceGroup& follower, SequenceGroup& leader) {
  if (follower.priority < leader.rank) set_rank(leader, follower.priority);
}

// The edge found earlier still holds. O(1): a burst of followers is looked at in every step.
bool Scheduler::Impl::still_follows(SequenceGroup& g, const Sequence*& source) {
  if (!g.leader) return false;
  const auto it = groups.find(*g.leader);
  if (it != groups.end() && it->second->running && !it->second->evicting && it->second->branches[0]->started) {
    const Sequence& lead = *it->second->branches[0];
    if (!ready(g, lead)) return true;
    source = &lead;
  }
  g.leader.reset();
  return false;
}

void Scheduler::Impl::start(StepSlot& slot, Sequence& seq, const Sequence* lead, int32_t common) {
  const int32_t size = config.block_size;
  const SequenceGroup& group = *seq.group;
  const auto cached = static_cast<int32_t>(match.path.size());
  const int32_t matched = match.tokens(size);
  const int32_t led = lead == nullptr ? 0 : shareable(*lead, std::min(common, takeover_limit(seq)));
  const bool from_lead = led > matched;
  int32_t filled = std::max(led, matched);
  const auto start_for = [&](int32_t have) {
    int32_t at = std::min(have, last_start(seq));
    if (wants_prompt_logits(group)) at = std::min(at, group.logits_done);
    return at;
  };

  for (BlockTable& table : seq.tables) table.reserve(blocks_for(filled));
  reserve_more(slot.sources, seq.tables.size());
  reserve_more(slot.plan.copies, seq.tables.size());
  const auto share_full_blocks = [&] {
    for (int g = 0; g < cache.num_groups(); ++g) {
      BlockTable& table = seq.tables[g];
      const int32_t oldest = oldest_block(g, start_for(filled));
      for (int32_t i = 0; i < filled / size; ++i) {
        if (i < oldest) {
          table.append_gap();
        } else {
          table.append(cache.pool(g).share(i < cached ? cache.index().block(match.path[i], g) : lead->tables[g][i]));
        }
      }
    }
  };
  share_full_blocks();
  if (filled % size > 0) {
    // Pin every source before the first allocation: that may evict.
    const size_t pins = slot.sources.size();
    bool room = true;
    for (int g = 0; g < cache.num_groups(); ++g) {
      const BlockId src = from_lead ? lead->tables[g][filled / size] : cache.index().block(match.tail, g);
      slot.sources.push_back(cache.pool(g).pin(src));
      room &= cache.available(g) > 0;
    }
    for (int g = 0; g < cache.num_groups() && room; ++g) {
      BlockRef fresh = cache.allocate(g);
      slot.plan.copies.push_back({g, slot.sources[pins + g].id(), fresh.id(), filled % size});
      seq.tables[g].append(std::move(fresh));
    }
    if (!room) {  // the pool is so full that the source itself must give way: compute these tokens
      slot.sources.resize(pins);
      filled -= filled % size;
      if (windowed) {  // an earlier start reads earlier blocks, which the leader may have given up
        filled = std::min(filled, cached * size);
        for (BlockTable& table : seq.tables) table.clear();
        share_full_blocks();
      }
    }
  }
  seq.filled = filled;
  seq.computed = seq.planned = start_for(filled);
  // What came from a leader may be written in this very step, so whoever starts behind this sequence now may not copy
  // it.
  seq.last_step = next_step;
  seq.planned_before = from_lead ? std::min(seq.planned, std::max(matched, lead->written(next_step))) : seq.planned;
  seq.indexed = cached;
  seq.node = cached > 0 ? match.path.back() : kNoNode;
  cache.index().hold(seq.node);
  seq.started = true;
}

// Starts a sequence with its first row, or leaves everything as it was, also where it throws. Returns the tokens
// planned.
int32_t Scheduler::Impl::start_row(StepSlot& slot, Sequence& seq, const Sequence* lead, int32_t common) {
  const size_t copies = slot.plan.copies.size();
  const size_t sources = slot.sources.size();
  const auto undo_start = [&] {
    reset(seq);
    slot.plan.copies.resize(copies);
    slot.sources.resize(sources);
  };
  start(slot, seq, lead, common);
  const int32_t left = seq.remaining() - (seq.group->branches.size() > 1 ? 1 : 0);
  note_cut(*seq.group, left);
  const int32_t n = fitting(seq, std::min(chunk(), left));
  if (n == 0) {
    undo_start();
    return 0;
  }
  try {
    plan_row(slot, seq, n);
  } catch (...) {
    undo_start();
    throw;
  }
  PlannedRow& undo = slot.rows.back();
  undo.started = true;
  undo.copies = copies;
  undo.sources = sources;
  return n;
}

// Blocks that `g` still needs for its histories and the next token of each branch.
int64_t Scheduler::Impl::blocks_to_finish(const SequenceGroup& g, int group) const {
  int64_t total = g.width() - static_cast<int64_t>(g.branches.size());
  for (const auto& seq : g.branches) {
    int64_t need = blocks_for(seq->length()) + 1;
    const int window = cache.window(group);
    if (window > 0) need = std::min(need, int64_t{blocks_for(int64_t{window} + config.max_tokens_per_step)} + 2);
    if (seq->started) {
      need -= seq->tables[group].size() - seq->tables[group].first();
    } else if (seq != g.branches[0]) {
      need -= std::min<int64_t>(need, g.prompt_size / config.block_size);  // taken from its sibling
    }
    total += std::max<int64_t>(need, 0);
  }
  return total;
}

int64_t Scheduler::Impl::room(int group) const {
  const auto kept = static_cast<int64_t>(config.watermark * cache.pool(group).size());
  return cache.available(group) - promised[group] - kept;
}

// Blocks that come out of the room there is when `g` enters.
int64_t Scheduler::Impl::blocks_to_enter(const SequenceGroup& g, const Sequence* source, int group) const {
  int64_t need = blocks_to_finish(g, group);
  for (const NodeId n : match.path) {  // cached blocks take room too, live ones do not
    const BlockId b = cache.index().block(n, group);
    if (b != kNoBlock && cache.pool(group).held(b)) --need;
  }
  if (source != nullptr) {
    const int32_t led = shareable(*source, std::min(g.common, takeover_limit(*g.branches[0]))) / config.block_size;
    need -= std::max<int64_t>(0, led - static_cast<int64_t>(match.path.size()));
  }
  return need;
}

bool Scheduler::Impl::has_room(const SequenceGroup& g, const Sequence* source) const {
  for (int i = 0; i < cache.num_groups(); ++i) {
    if (blocks_to_enter(g, source, i) > room(i)) return false;
  }
  return true;
}

void Scheduler::Impl::promise(const SequenceGroup& g, int sign) {
  for (int i = 0; i < cache.num_groups(); ++i) promised[i] += sign * blocks_to_finish(g, i);
}

void Scheduler::Impl::open_admission() {
  if (std::exchange(admission_open, true)) return;
  seats = config.max_seqs;
  followers = 0;
  std::ranges::fill(promised, 0);
  for (auto& [id, tenant] : waiting.tenants()) tenant.seats = 0;
  for (const SequenceGroup* g : running) {
    seats -= g->width();
    g->tenant->seats += g->width();
    if (prefilling(*g)) promise(*g, 1);
  }
}

bool Scheduler::Impl::admit_next(StepSlot& slot, Tenant& tenant) {
  open_admission();
  SequenceGroup& g = *tenant.waiting[tenant.next_waiting];
  if (config.max_seqs_per_tenant > 0 && tenant.seats + g.width() > config.max_seqs_per_tenant) {
    tenant.limited = true;  // holds up nobody else
    claim_priority(g);
    return true;
  }
  if (g.width() > seats) {
    admission_stop = WaitReason::kSequenceLimit;
    claim_seats(g);
    return false;
  }
  switch (try_admit(slot, g)) {
    case Admit::kYes:
      seats -= g.width();
      tenant.seats += g.width();
      promise(g, 1);
      break;
    case Admit::kFollows:  // holds nobody up
      if (++followers >= config.max_seqs) return false;
      ++tenant.next_waiting;
      break;
    case Admit::kNoRoom:
      admission_stop = WaitReason::kNoBlocks;
      return false;
  }
  waiting.again(tenant);
  return true;
}

Scheduler::Impl::Admit Scheduler::Impl::try_admit(StepSlot& slot, SequenceGroup& g) {
  Sequence& seq = *g.branches[0];
  const Sequence* source = nullptr;
  if (still_follows(g, source)) return Admit::kFollows;
  // Looking a long prompt up costs; while nothing was freed it is tried again now and then only.
  constexpr StepId kRetrySteps = 8;
  if (!running.empty() && next_step < g.blocked_step + kRetrySteps && room(0) <= g.blocked_room) return Admit::kNoRoom;
  find_prefix(seq);
  if (source == nullptr) source = running_source(g);
  if (source == nullptr && follow(g, source)) return Admit::kFollows;
  if (!running.empty() && !has_room(g, source)) {
    g.blocked_room = room(0);
    g.blocked_step = next_step;
    claim_blocks(g, source);
    return Admit::kNoRoom;
  }

  if (start_row(slot, seq, source, g.common) == 0) return Admit::kNoRoom;
  waiting.erase(&g);
  g.running = true;
  running.insert(&g);
  slot.rows.back().admitted = true;
  log->note(DecisionKind::kAdmit, next_step, g.id, {slot.rows.back().first_pos, slot.rows.back().n_tokens});
  if (!g.admitted) {
    admissions.push_back({g.id, seq.computed});
    g.admitted = true;
    stats.prefix_queries += g.prompt_size;
    stats.prefix_hits += seq.computed;
  }
  return Admit::kYes;
}

}  // namespace octavo
