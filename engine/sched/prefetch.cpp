// Asks for what the commit of a step reads, for all of its rows at once: the step has driven it out of the caches.
#include "base/prefetch.h"

#include "sched/scheduler_impl.h"

namespace octavo {

void Scheduler::Impl::prefetch(const StepSlot& slot) const {
  using octavo::prefetch;
  const auto each_sequence = [&](auto visit) {
    for (const PlannedRow& row : slot.rows) {
      if (const Sequence* seq = find_sequence(row.seq)) visit(*seq);
    }
  };
  const auto each_last_block = [&](auto visit) {
    for (int g = 0; g < cache.num_groups(); ++g) {
      const StepPlan::Group& group = slot.plan.groups[g];
      for (size_t row = 1; row < group.table_offsets.size(); ++row)
        visit(cache.pool(g), group.tables[group.table_offsets[row] - 1]);
    }
  };
  // What holds an address comes before what is there.
  for (const PlannedRow& row : slot.rows) sequences.prefetch(row.seq);
  each_last_block([](const BlockPool& pool, BlockId block) { pool.prefetch(block); });
  each_sequence([](const Sequence& seq) { prefetch(seq); });
  each_last_block([&](const BlockPool& pool, BlockId block) { cache.index().prefetch(pool.node(block)); });
  each_sequence([&](const Sequence& seq) {
    prefetch(*seq.group);
    prefetch(seq.tables.data(), seq.tables.size() * sizeof(BlockTable));
    const size_t first = (seq.tokens.size() - 1) / config.block_size * config.block_size;
    prefetch(seq.tokens.data() + first, (seq.tokens.size() - first) * sizeof(int32_t));
  });
  each_sequence([](const Sequence& seq) {
    for (const BlockTable& table : seq.tables) table.prefetch_last();
  });
}

}  // namespace octavo
