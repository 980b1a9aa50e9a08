#pragma once
#include <cstdint>
#include <map>
#include <vector>

#include "sched/group_queue.h"

namespace octavo {

// Who sends requests. Tenants are served by virtual token counters (Sheng et al., OSDI '24): the one that had the
// fewest tokens computed comes first.
struct Tenant {
  uint64_t id = 0;
  int64_t served = 0;  // tokens computed for it, and what it was lifted by
  size_t requests = 0;
  GroupQueue<WaitingOrder> waiting;

  // Of the plan that is being made.
  std::vector<SequenceGroup*> prefills;  // running, their prompts incomplete
  size_t next_prefill = 0;
  size_t next_waiting = 0;
  int32_t seats = 0;     // that its running requests take
  int64_t held = 0;      // blocks, each once
  bool limited = false;  // as many of its sequences run as may
};

// The waiting requests of all tenants.
class FairQueue {
 public:
  Tenant& join(uint64_t tenant);  // one more request of the tenant is there: there is room for it to wait
  void leave(Tenant& tenant);     // one less; its record may go

  void insert(SequenceGroup* g);
  void erase(SequenceGroup* g);
  size_t size() const { return size_; }
  bool empty() const { return size_ == 0; }
  SequenceGroup* front() const;  // null: nobody waits

  // Who idled has no credit: it starts where the tenant stands that is served now.
  void lift(Tenant& tenant) const { tenant.served = std::max(tenant.served, now_); }

  // Tenants by turns: next() takes the one served least out, again() puts it back.
  void open_turns();
  Tenant* next();
  void again(Tenant& tenant);
  bool unseen() const;  // somebody waits whose turn did not come

  std::map<uint64_t, Tenant>& tenants() { return tenants_; }
  int active() const { return active_; }        // tenants with requests
  std::vector<const Tenant*> in_order() const;  // those with requests, served least first

 private:
  std::map<uint64_t, Tenant> tenants_;  // those without requests only while they were served more than now_
  std::vector<Tenant*> turns_;          // a heap
  size_t size_ = 0;
  int active_ = 0;
  int64_t now_ = 0;  // what the tenant whose turn it was last had been served
};

}  // namespace octavo
