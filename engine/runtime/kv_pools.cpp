#include "runtime/kv_pools.h"

#include <algorithm>
#include <numeric>

#include "model/step_inputs.h"

namespace octavo {

class KvPools::Pool final : public KvPool {
 public:
  KvLayer layer(int index) const override { return inner->layer(index); }
  size_t bytes() const override { return inner ? inner->bytes() : 0; }
  void begin_writes(int highest) noexcept override { inner->begin_writes(highest); }
  void end_writes() noexcept override { inner->end_writes(); }
  std::unique_ptr<KvPool> inner;
};

KvPools::KvPools(Backend& backend, const std::vector<KvGroup>& groups, int block_size)
    : backend_(backend), groups_(groups), block_size_(block_size) {
  for (const KvGroup& group : groups) {
    block_bytes_.push_back(backend.kv_bytes(group, block_size));
    views_.push_back(pools_.emplace_back(std::make_unique<Pool>()).get());
  }
}

KvPools::~KvPools() = default;

void KvPools::allocate(const std::vector<int>& blocks) {
  for (const auto& pool : pools_) pool->inner.reset();
  for (size_t g = 0; g < groups_.size(); ++g) {
    pools_[g]->inner = backend_.make_kv_pool(groups_[g], block_size_, blocks.at(g));
  }
}

size_t KvPools::bytes() const {
  size_t total = 0;
  for (const auto& pool : pools_) total += pool->bytes();
  return total;
}

// All rows read one block of zeros and write nothing.
void profile_run(Backend& backend, Queue& queue, Decoder& decoder, KvPools& pools, int block_size) {
  pools.allocate(std::vector<int>(decoder.kv_groups().size(), 1));
  const int tokens = decoder.max_tokens(), longest = std::min(tokens, decoder.max_positions());
  const int num_rows = (tokens + longest - 1) / longest, blocks = (longest + block_size - 1) / block_size;
  const std::vector<int32_t> ids(tokens), slots(tokens, -1), table(blocks);
  std::vector<int32_t> positions(tokens), wanted;
  std::vector<AttentionRow> rows;
  for (int first = 0; first < tokens; first += longest) {
    const int n = std::min(longest, tokens - first);
    std::iota(positions.begin() + first, positions.begin() + first + n, 0);
    rows.push_back({first, n, 0, table.data()});
    wanted.push_back(first + n - 1);
  }
  const std::vector<HostBatch::Group> groups(decoder.kv_groups().size(), {slots, rows, table, {}});
  HostBatch host;
  host.tokens = ids;
  host.positions = positions;
  host.groups = groups;
  host.logit_tokens = wanted;
  const int last = decoder.cache_place(decoder.config().num_layers - 1).group;
  StepInputs inputs(backend, static_cast<int>(groups.size()), last, {tokens, num_rows, blocks});
  ForwardBatch& batch = inputs.stage(queue, host);
  const auto logits = backend.allocate(wanted.size() * static_cast<size_t>(decoder.config().vocab) * sizeof(float));
  batch.logits = logits->as<float>();
  decoder.forward(queue, batch, pools.views());
  queue.wait();
}

}  // namespace octavo
