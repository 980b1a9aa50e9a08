#pragma once
#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <utility>
#include <vector>

#include "plan/step_plan.h"
#include "sample/params.h"

namespace octavo {

// What a fork needs of a sequence that has ended.
struct FinishedHistory {
  std::vector<int32_t> tokens;  // prompt and output
  size_t output_start = 0;      // tokens before it are prompt
  std::shared_ptr<const SamplingParams> params;
  uint64_t prefix_namespace = 0;
  int32_t shared_tokens = 0;
  uint64_t tenant = 0;
  int32_t priority = 0;
  std::shared_ptr<uint32_t> next_choice;
};

// The sequences that ended last, so that they can be forked. What is older than `max_tokens` tokens of them is
// forgotten: the pool's size is a good bound, since beyond it the cache has forgotten them too.
class FinishedHistories {
 public:
  explicit FinishedHistories(size_t max_tokens) : max_tokens_(max_tokens) {}

  // Changes nothing when it throws.
  void keep(RequestId id, int32_t choice, FinishedHistory history);
  const FinishedHistory* find(RequestId id, int32_t choice) const;  // null: unknown or forgotten

 private:
  using Key = std::pair<RequestId, int32_t>;
  size_t max_tokens_;
  size_t tokens_ = 0;
  std::map<Key, FinishedHistory> histories_;
  std::deque<Key> order_;  // oldest first
};

}  // namespace octavo
