#include "backend/cpu/queue.h"

#include <algorithm>

#include "backend/cpu/attention.h"
#include "backend/cpu/linear_inputs.h"
#include "base/errors.h"
#include "base/format.h"

namespace octavo {

void CpuQueue::reserve(const WorkspaceLimits& limits) {
  const int threads = pool_.threads();
  const size_t bytes = std::max(cpu::linear_workspace(limits, threads), cpu::attention_workspace(limits, threads));
  if (bytes > workspace_.size()) workspace_ = Buffer(bytes);
}

void CpuQueue::parallel_for(int n, const std::function<void(int)>& body) {
  pool_.run(n, [&](int i, int) { body(i); });
}

std::byte* CpuQueue::workspace(size_t bytes) {
  if (bytes > workspace_.size()) {
    throw Error(ErrorCode::kInternal, "workspace",
                cat("an operation needs ", bytes, " bytes of workspace, ", workspace_.size(), " are reserved"));
  }
  return workspace_.data();
}

}  // namespace octavo
