// Preemption: who gives way when blocks run out, and whom a waiting request may displace.
#include <algorithm>

#include "sched/scheduler_impl.h"

namespace octavo {

// Blocks of a KV group that each tenant's running requests hold, each block once.
void Scheduler::Impl::count_held(int group) {
  for (auto& [id, t] : waiting.tenants()) t.held = 0;
  seen.assign(cache.pool(group).size(), 0);
  for (SequenceGroup* g : running) {
    for (const auto& seq : g->branches) {
      const BlockTable& table = seq->tables[group];
      for (int i = table.first(); i < table.size(); ++i) {
        if (!std::exchange(seen[table[i]], 1)) ++g->tenant->held;
      }
    }
  }
}

int Scheduler::Impl::tightest_group() const {
  int tight = 0;
  for (int i = 1; i < cache.num_groups(); ++i) {
    if (cache.available(i) < cache.available(tight)) tight = i;
  }
  return tight;
}

SequenceGroup* Scheduler::Impl::last_of(const Tenant& tenant) const {
  for (size_t i = running.size(); i-- > 0;) {
    if (running[i]->tenant == &tenant) return running[i];
  }
  return nullptr;
}

// The least important request of the tenant that holds most.
SequenceGroup& Scheduler::Impl::victim() {
  if (waiting.active() == 1) return *running.back();
  count_held(tightest_group());
  const Tenant* most = running.back()->tenant;
  for (const SequenceGroup* g : running) {
    if (g->tenant->held > most->held) most = g->tenant;
  }
  return *last_of(*most);
}

// `g` finds no seat. Somebody of its tenant who matters less gives way, or somebody of the tenant with most seats while
// that has more than its share and `g` stays within its own.
void Scheduler::Impl::claim_seats(const SequenceGroup& g) {
  if (claim_priority(g) || waiting.active() == 1) return;
  const int32_t share = config.max_seqs / waiting.active();
  if (g.tenant->seats + g.width() > share) return;
  const Tenant* most = nullptr;
  for (const auto& [id, t] : waiting.tenants()) {
    if (t.seats > share && (most == nullptr || t.seats > most->seats)) most = &t;
  }
  if (most != nullptr) evict(last_of(*most), g);
}

// The same with blocks.
void Scheduler::Impl::claim_blocks(const SequenceGroup& g, const Sequence* source) {
  if (claim_priority(g) || waiting.active() == 1) return;
  for (int i = 0; i < cache.num_groups(); ++i) {
    const int64_t need = blocks_to_enter(g, source, i);
    if (need <= room(i)) continue;
    count_held(i);
    const int64_t share = cache.pool(i).size() / waiting.active();
    if (g.tenant->held + need > share) return;
    const Tenant* most = nullptr;
    for (const auto& [id, t] : waiting.tenants()) {
      if (t.held > share && (most == nullptr || t.held > most->held)) most = &t;
    }
    if (most != nullptr) evict(last_of(*most), g);
    return;
  }
}

// The order by key is fixed, so that two requests never displace each other in turn.
bool Scheduler::Impl::claim_priority(const SequenceGroup& g) {
  for (size_t i = running.size(); i-- > 0;) {
    SequenceGroup* r = running[i];
    if (r->tenant != g.tenant || r->rank <= g.priority || r->key <= g.key) continue;
    evict(r, g);
    return true;
  }
  return false;
}

// One at a time: the next plan sees what came free.
void Scheduler::Impl::evict(SequenceGroup* g, const SequenceGroup& favoured) {
  if (std::ranges::any_of(running, [](const SequenceGroup* r) { return r->evicting; })) return;
  g->evicting = true;
  log->note(DecisionKind::kEvict, next_step, g->id, {static_cast<int64_t>(favoured.id)});
}

}  // namespace octavo
