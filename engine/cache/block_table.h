#pragma once
#include <utility>
#include <vector>

#include "base/prefetch.h"
#include "cache/block_pool.h"

namespace octavo {

// Copy the first `slots` slots of `src` into `dst` before anyone writes.
struct CopyOnWrite {
  BlockId src = kNoBlock;
  BlockId dst = kNoBlock;
  int slots = 0;
  BlockPin source;  // keeps src until the copy is made
};

// Where the positions of one sequence lie in one KV group: entry i holds a share of the block of positions
// [i * block_size, (i + 1) * block_size). An entry is kNoBlock when its positions have left the window.
class BlockTable {
 public:
  explicit BlockTable(BlockPool& pool) : pool_(&pool) {}
  BlockTable(BlockTable&& other) noexcept
      : pool_(other.pool_), ids_(std::move(other.ids_)), first_(std::exchange(other.first_, 0)) {
    other.ids_.clear();
  }
  BlockTable& operator=(BlockTable&& other) noexcept;
  ~BlockTable() { clear(); }

  // Takes shares of the first `blocks` entries of `from`; this one is empty.
  void share_front(const BlockTable& from, int blocks);
  BlockTable fork() const;

  BlockPool& pool() const { return *pool_; }
  int size() const { return static_cast<int>(ids_.size()); }
  int first() const { return first_; }  // entries before it have left the window
  BlockId operator[](int i) const { return ids_[i]; }
  const BlockId* data() const { return ids_.data(); }
  // Room for so many entries: until then nothing allocates.
  void reserve(int blocks);

  void append(BlockRef block);
  void append_gap() { ids_.push_back(kNoBlock), first_ = size(); }  // only where nothing is held yet
  BlockRef pop_back();
  BlockRef replace(int i, BlockRef block);  // returns the share that was there
  BlockRef drop_front();                    // entry first() leaves the window
  void clear();                             // last entry first, so that leaves age before their parents

  // Of the last entry.
  void prefetch_last() const {
    if (!ids_.empty()) prefetch(ids_.back());
  }

  bool shared(int i) const { return pool_->shared(ids_[i]); }
  // `fresh` takes the place of block i, whose first `slots` slots must be copied into it before it is written.
  CopyOnWrite copy_on_write(int i, int slots, BlockRef fresh);

 private:
  BlockPool* pool_;
  std::vector<BlockId> ids_;
  int first_ = 0;
};

}  // namespace octavo
