#pragma once
#include <algorithm>
#include <memory>
#include <string>

#include "backend/cpu/cpu_backend.h"
#include "ops/backend.h"

namespace octavo {

// The CPU's ops outside an engine: for `octavo.ops` and for tests. One caller at a time. The workspace grows with what
// is asked for; an engine's is sized once.
class CpuOps {
 public:
  CpuOps(int threads, const std::string& isa)
      : backend_(make_cpu_backend(isa)), queue_(backend_->make_queue(threads)) {}

  Backend& backend() { return *backend_; }
  Queue& queue() { return *queue_; }

  void reserve(const WorkspaceLimits& needed) {
    auto grow = [](int& have, int need) { have = std::max(have, need); };
    grow(limits_.max_tokens, needed.max_tokens);
    grow(limits_.max_k, needed.max_k);
    grow(limits_.max_n, needed.max_n);
    grow(limits_.max_heads, needed.max_heads);
    grow(limits_.max_head_dim, needed.max_head_dim);
    grow(limits_.max_positions, needed.max_positions);
    queue_->reserve(limits_);
  }

 private:
  std::unique_ptr<Backend> backend_;
  std::unique_ptr<Queue> queue_;
  WorkspaceLimits limits_;
};

}  // namespace octavo
