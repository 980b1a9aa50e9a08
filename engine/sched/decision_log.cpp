#include "sched/decision_log.h"

#include <algorithm>

namespace octavo {

std::vector<Decision> DecisionLog::last() const {
  const uint64_t n = std::min<uint64_t>(total_, ring_.size());
  std::vector<Decision> out;
  out.reserve(n);
  for (uint64_t i = total_ - n; i < total_; ++i) out.push_back(ring_[i % ring_.size()]);
  return out;
}

}  // namespace octavo
