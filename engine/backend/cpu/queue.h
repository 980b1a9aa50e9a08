#pragma once
#include "backend/cpu/pool.h"
#include "ops/backend.h"
#include "tensor/buffer.h"

namespace octavo {

// The CPU's queue: ops run at once on its pool, one after the other, and share one workspace.
class CpuQueue final : public Queue {
 public:
  explicit CpuQueue(int threads) : pool_(threads) {}

  int threads() const override { return pool_.threads(); }
  void reserve(const WorkspaceLimits& limits) override;
  void parallel_for(int n, const std::function<void(int)>& body) override;

  void wait() override {}  // ops are done when they return
  void watch_regions(RegionTimes* times) override { pool_.watch(times); }

  ThreadPool& pool() { return pool_; }
  // 64-byte aligned scratch of the op that runs; Error(kInternal) when the op exceeds the reserved limits.
  std::byte* workspace(size_t bytes);
  size_t workspace_bytes() const { return workspace_.size(); }

 private:
  ThreadPool pool_;
  Buffer workspace_;
};

}  // namespace octavo
