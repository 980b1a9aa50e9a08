#pragma once
#include <memory>
#include <span>
#include <vector>

#include "cache/block_pool.h"
#include "cache/block_table.h"
#include "cache/prefix_index.h"

namespace octavo {

struct PagedCacheGroup {
  int num_blocks = 0;
  int window = 0;  // 0: every position is kept
};

// The pools of all KV groups and the index of what their blocks hold.
class PagedCache {
 public:
  PagedCache(int block_size, const std::vector<PagedCacheGroup>& groups, PrefixKeyFn key_fn = prefix_key,
             PrefixKey root_key = {});

  PagedCache(const PagedCache&) = delete;
  PagedCache& operator=(const PagedCache&) = delete;

  int block_size() const { return block_size_; }
  int num_groups() const { return static_cast<int>(pools_.size()); }
  int window(int group) const { return windows_[group]; }
  BlockPool& pool(int group) { return *pools_[group]; }
  const BlockPool& pool(int group) const { return *pools_[group]; }
  PrefixIndex& index() { return index_; }
  const PrefixIndex& index() const { return index_; }

  // A free block, or the least recently used cached one; empty when all are live.
  BlockRef allocate(int group);
  int available(int group) const { return pool(group).num_free() + pool(group).num_cached(); }

  // The handles that the caller can account for, per group and block.
  struct Handles {
    std::vector<int> refs;
    std::vector<int> pins;
  };
  // Pools, index, and refcounts against `handles` ([groups]); throws Error(kInternal, "audit", ...).
  void audit(std::span<const Handles> handles) const;

 private:
  int block_size_;
  std::vector<int> windows_;
  std::vector<std::unique_ptr<BlockPool>> pools_;
  PrefixIndex index_;
};

}  // namespace octavo
