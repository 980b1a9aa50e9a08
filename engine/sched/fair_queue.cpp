#include "sched/fair_queue.h"

#include <algorithm>

#include "base/reserve.h"

namespace octavo {
namespace {

struct Later {
  bool operator()(const Tenant* a, const Tenant* b) const {
    return a->served != b->served ? a->served > b->served : a->id > b->id;
  }
};

}  // namespace

Tenant& FairQueue::join(uint64_t id) {
  auto it = tenants_.find(id);
  if (it == tenants_.end()) {
    std::erase_if(tenants_, [&](const auto& t) { return t.second.requests == 0 && t.second.served <= now_; });
    it = tenants_.try_emplace(id).first;
    it->second.id = id;
  }
  reserve_more(it->second.waiting, it->second.requests + 1 - it->second.waiting.size());
  if (it->second.requests++ == 0) ++active_;
  return it->second;
}

void FairQueue::leave(Tenant& tenant) {
  if (--tenant.requests > 0) return;
  if (--active_ == 0) {
    tenants_.clear();
  } else if (tenant.served <= now_) {
    tenants_.erase(tenant.id);
  }
}

void FairQueue::insert(SequenceGroup* g) {
  g->tenant->waiting.insert(g);
  ++size_;
}

void FairQueue::erase(SequenceGroup* g) {
  g->tenant->waiting.erase(g);
  --size_;
}

SequenceGroup* FairQueue::front() const {
  const Tenant* first = nullptr;
  for (const auto& [id, t] : tenants_) {
    if (!t.waiting.empty() && (first == nullptr || Later{}(first, &t))) first = &t;
  }
  return first == nullptr ? nullptr : first->waiting[0];
}

void FairQueue::open_turns() {
  turns_.clear();
  for (auto& [id, t] : tenants_) {
    t.next_prefill = t.next_waiting = 0;
    t.limited = false;
    if (!t.prefills.empty() || !t.waiting.empty()) turns_.push_back(&t);
  }
  std::ranges::make_heap(turns_, Later{});
}

Tenant* FairQueue::next() {
  if (turns_.empty()) return nullptr;
  std::ranges::pop_heap(turns_, Later{});
  Tenant* tenant = turns_.back();
  turns_.pop_back();
  now_ = std::max(now_, tenant->served);
  return tenant;
}

void FairQueue::again(Tenant& tenant) {
  if (tenant.next_prefill == tenant.prefills.size() && tenant.next_waiting == tenant.waiting.size()) return;
  turns_.push_back(&tenant);
  std::ranges::push_heap(turns_, Later{});
}

bool FairQueue::unseen() const {
  return std::ranges::any_of(turns_, [](const Tenant* t) { return t->next_waiting < t->waiting.size(); });
}

std::vector<const Tenant*> FairQueue::in_order() const {
  std::vector<const Tenant*> out;
  for (const auto& [id, t] : tenants_) {
    if (t.requests > 0) out.push_back(&t);
  }
  std::ranges::sort(out, [](const Tenant* a, const Tenant* b) { return Later{}(b, a); });
  return out;
}

}  // namespace octavo
