// What must hold between any two calls.
#include "base/format.h"
#include "sched/scheduler_impl.h"

namespace octavo {

void Scheduler::Impl::audit() const {
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::kInternal, "audit", what); };
  std::vector<PagedCache::Handles> handles(cache.num_groups());
  for (int g = 0; g < cache.num_groups(); ++g) {
    handles[g].refs.assign(cache.pool(g).size(), 0);
    handles[g].pins.assign(cache.pool(g).size(), 0);
  }
  const auto group_of = [&](const BlockPool* pool) {
    for (int g = 0; g < cache.num_groups(); ++g) {
      if (&cache.pool(g) == pool) return g;
    }
    return -1;
  };

  size_t branches = 0;
  for (const auto& [id, group] : groups) {
    branches += group->branches.size();
    if (group->branches.empty()) fail(cat("request ", id, " has no branch"));
    if (!group->running && group->rows_in_flight != 0) fail(cat("request ", id, " waits with rows in flight"));
    for (const auto& seq : group->branches) {
      if (find_sequence(seq->id) != seq.get()) fail(cat("sequence ", seq->id, " is not known"));
      if (!group->running && seq->started) fail(cat("sequence ", seq->id, " waits and holds blocks"));
      if (seq->computed > seq->planned || seq->planned > seq->length() || seq->computed > seq->filled) {
        fail(cat("sequence ", seq->id, ": computed ", seq->computed, ", filled ", seq->filled, ", planned ",
                 seq->planned, ", length ", seq->length()));
      }
      for (int g = 0; g < cache.num_groups(); ++g) {
        const BlockTable& table = seq->tables[g];
        if (table.size() < blocks_for(std::max(seq->filled, seq->planned)))
          fail(cat("sequence ", seq->id, " has too short a table"));
        for (int i = 0; i < table.size(); ++i) {
          if ((table[i] == kNoBlock) != (i < table.first()))
            fail(cat("sequence ", seq->id, " has a hole in its table"));
          if (table[i] == kNoBlock) continue;
          ++handles[g].refs[table[i]];
          const NodeId node = cache.pool(g).node(table[i]);
          if (i < seq->indexed && node == kNoNode)
            fail(cat("block ", table[i], " of sequence ", seq->id, " is not indexed"));
        }
      }
    }
  }
  if (branches != sequences.size()) fail(cat(sequences.size(), " sequences known, ", branches, " in requests"));
  if (waiting.size() + running.size() != groups.size()) fail("a request is in no queue, or in two");

  for (const auto& slot : in_flight) {
    for (const TableChange& change : slot->changes) {
      if (change.previous) ++handles[change.group].pins[change.previous.id()];
    }
    for (const BlockPin& pin : slot->sources) ++handles[group_of(pin.pool())].pins[pin.id()];
    for (int g = 0; g < cache.num_groups(); ++g) {
      for (const BlockRef& ref : slot->retired[g].refs()) ++handles[g].refs[ref.id()];
    }
  }
  cache.audit(handles);
}

}  // namespace octavo
