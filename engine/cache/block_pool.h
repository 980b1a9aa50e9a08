#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "base/prefetch.h"

namespace octavo {

using BlockId = int32_t;
using NodeId = int32_t;  // a node of the prefix index
inline constexpr BlockId kNoBlock = -1;
inline constexpr NodeId kNoNode = -1;

class BlockRef;
class BlockPin;

// The blocks of one KV group. A block is exactly one of
//   free    nobody holds it and its contents mean nothing,
//   live    handles hold it,
//   cached  nobody holds it, but a node of the prefix index names it, so that it can be found again.
// Cached blocks lie in the order of their last release. Every operation is O(1).
class BlockPool {
 public:
  explicit BlockPool(int num_blocks);
  BlockPool(const BlockPool&) = delete;
  BlockPool& operator=(const BlockPool&) = delete;

  int size() const { return static_cast<int>(blocks_.size()); }
  int num_free() const { return num_free_; }
  int num_cached() const { return num_cached_; }
  int num_live() const { return size() - num_free_ - num_cached_; }

  BlockRef allocate();         // a free block, low ids first; empty when none is free
  BlockRef share(BlockId id);  // one more handle on a live or cached block
  BlockPin pin(BlockId id);    // keeps a live or cached block's contents without owning it

  int refs(BlockId id) const { return blocks_[id].refs; }
  int pins(BlockId id) const { return blocks_[id].pins; }
  bool shared(BlockId id) const { return blocks_[id].refs > 1; }  // must be copied before it is written
  bool held(BlockId id) const { return blocks_[id].refs + blocks_[id].pins > 0; }

  // The index's side: the node that names the block.
  NodeId node(BlockId id) const { return blocks_[id].node; }
  void prefetch(BlockId id) const { octavo::prefetch(blocks_[id]); }
  void set_node(BlockId id, NodeId node);
  void clear_node(BlockId id);  // a cached block becomes free
  BlockId oldest_cached() const { return lru_head_; }
  void move_to_newest(BlockId id);

  std::vector<BlockId> cached_order() const;  // oldest first
  void audit() const;                         // throws Error(kInternal, "audit", ...)

  // The handles' side.
  void add_ref(BlockId id);
  void drop_ref(BlockId id);
  void add_pin(BlockId id);
  void drop_pin(BlockId id);

 private:
  struct Block {
    int32_t refs = 0;
    int32_t pins = 0;
    NodeId node = kNoNode;
    BlockId prev = kNoBlock;  // in the list of cached blocks
    BlockId next = kNoBlock;  // in the list of cached blocks, or of free ones
  };
  void wake(BlockId id);    // about to be held
  void settle(BlockId id);  // maybe no longer held
  void push_free(BlockId id);
  void push_newest(BlockId id);
  void unlink(BlockId id);

  std::vector<Block> blocks_;
  BlockId free_head_ = kNoBlock;
  BlockId lru_head_ = kNoBlock;
  BlockId lru_tail_ = kNoBlock;
  int num_free_ = 0;
  int num_cached_ = 0;
};

// A holder's share of a block. Moves; a second share is made by share().
class BlockRef {
 public:
  BlockRef() = default;
  BlockRef(BlockPool& pool, BlockId id) : pool_(&pool), id_(id) { pool.add_ref(id); }
  BlockRef(BlockRef&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoBlock)) {}
  BlockRef& operator=(BlockRef&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      id_ = std::exchange(other.id_, kNoBlock);
    }
    return *this;
  }
  ~BlockRef() { reset(); }

  explicit operator bool() const { return pool_ != nullptr; }
  const BlockPool* pool() const { return pool_; }
  BlockId id() const { return id_; }
  void reset() {
    if (pool_ != nullptr) std::exchange(pool_, nullptr)->drop_ref(std::exchange(id_, kNoBlock));
  }

 private:
  friend class BlockTable;
  BlockId release() {  // the share passes to the caller
    pool_ = nullptr;
    return std::exchange(id_, kNoBlock);
  }
  BlockPool* pool_ = nullptr;
  BlockId id_ = kNoBlock;
};

// Keeps the contents of a block for a copy that is still to be made, without counting as a reader or writer.
class BlockPin {
 public:
  BlockPin() = default;
  BlockPin(BlockPool& pool, BlockId id) : pool_(&pool), id_(id) { pool.add_pin(id); }
  BlockPin(BlockPin&& other) noexcept
      : pool_(std::exchange(other.pool_, nullptr)), id_(std::exchange(other.id_, kNoBlock)) {}
  BlockPin& operator=(BlockPin&& other) noexcept {
    if (this != &other) {
      reset();
      pool_ = std::exchange(other.pool_, nullptr);
      id_ = std::exchange(other.id_, kNoBlock);
    }
    return *this;
  }
  ~BlockPin() { reset(); }

  explicit operator bool() const { return pool_ != nullptr; }
  const BlockPool* pool() const { return pool_; }
  BlockId id() const { return id_; }
  void reset() {
    if (pool_ != nullptr) std::exchange(pool_, nullptr)->drop_pin(std::exchange(id_, kNoBlock));
  }

 private:
  BlockPool* pool_ = nullptr;
  BlockId id_ = kNoBlock;
};

}  // namespace octavo
