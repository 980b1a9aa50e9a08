#include "cache/block_pool.h"

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

BlockPool::BlockPool(int num_blocks) {
  if (num_blocks < 1) {
    throw Error(ErrorCode::kInvalidArgument, "num_blocks", cat("num_blocks must be at least 1, got ", num_blocks));
  }
  blocks_.resize(num_blocks);
  for (BlockId id = num_blocks - 1; id >= 0; --id) push_free(id);
}

BlockRef BlockPool::allocate() {
  const BlockId id = free_head_;
  if (id == kNoBlock) return {};
  return BlockRef(*this, id);
}

BlockRef BlockPool::share(BlockId id) { return BlockRef(*this, id); }

BlockPin BlockPool::pin(BlockId id) { return BlockPin(*this, id); }

void BlockPool::add_ref(BlockId id) {
  wake(id);
  ++blocks_[id].refs;
}

void BlockPool::drop_ref(BlockId id) {
  --blocks_[id].refs;
  settle(id);
}

void BlockPool::add_pin(BlockId id) {
  wake(id);
  ++blocks_[id].pins;
}

void BlockPool::drop_pin(BlockId id) {
  --blocks_[id].pins;
  settle(id);
}

void BlockPool::wake(BlockId id) {
  if (held(id)) return;
  if (blocks_[id].node != kNoNode) {
    unlink(id);
    --num_cached_;
    return;
  }
  if (id != free_head_) throw Error(ErrorCode::kInternal, "block", cat("block ", id, " is free and cannot be shared"));
  free_head_ = blocks_[id].next;
  blocks_[id].next = kNoBlock;
  --num_free_;
}

void BlockPool::settle(BlockId id) {
  if (held(id)) return;
  if (blocks_[id].node != kNoNode) {
    push_newest(id);
    ++num_cached_;
  } else {
    push_free(id);
  }
}

void BlockPool::set_node(BlockId id, NodeId node) {
  if (!held(id)) throw Error(ErrorCode::kInternal, "block", cat("block ", id, " is not live and cannot be indexed"));
  blocks_[id].node = node;
}

void BlockPool::clear_node(BlockId id) {
  if (!held(id)) {
    unlink(id);
    --num_cached_;
    push_free(id);
  }
  blocks_[id].node = kNoNode;
}

void BlockPool::move_to_newest(BlockId id) {
  unlink(id);
  push_newest(id);
}

void BlockPool::push_free(BlockId id) {
  blocks_[id].next = free_head_;
  free_head_ = id;
  ++num_free_;
}

void BlockPool::push_newest(BlockId id) {
  blocks_[id].prev = lru_tail_;
  blocks_[id].next = kNoBlock;
  (lru_tail_ == kNoBlock ? lru_head_ : blocks_[lru_tail_].next) = id;
  lru_tail_ = id;
}

void BlockPool::unlink(BlockId id) {
  Block& b = blocks_[id];
  (b.prev == kNoBlock ? lru_head_ : blocks_[b.prev].next) = b.next;
  (b.next == kNoBlock ? lru_tail_ : blocks_[b.next].prev) = b.prev;
  b.prev = b.next = kNoBlock;
}

std::vector<BlockId> BlockPool::cached_order() const {
  std::vector<BlockId> order;
  for (BlockId id = lru_head_; id != kNoBlock; id = blocks_[id].next) order.push_back(id);
  return order;
}

void BlockPool::audit() const {
  const auto fail = [](const std::string& what) { throw Error(ErrorCode::kInternal, "audit", what); };
  std::vector<char> seen(blocks_.size(), 0);
  int free = 0;
  for (BlockId id = free_head_; id != kNoBlock; id = blocks_[id].next, ++free) {
    if (seen[id]++ != 0) fail(cat("block ", id, " is twice in the free list"));
    if (held(id) || blocks_[id].node != kNoNode) fail(cat("block ", id, " is free and still held or indexed"));
  }
  int cached = 0;
  BlockId prev = kNoBlock;
  for (BlockId id = lru_head_; id != kNoBlock; prev = id, id = blocks_[id].next, ++cached) {
    if (seen[id]++ != 0) fail(cat("block ", id, " is in two lists"));
    if (held(id) || blocks_[id].node == kNoNode) fail(cat("block ", id, " is cached and held, or not indexed"));
    if (blocks_[id].prev != prev) fail(cat("block ", id, " has a broken link"));
  }
  int live = 0;
  for (BlockId id = 0; id < size(); ++id) {
    if (blocks_[id].refs < 0 || blocks_[id].pins < 0) fail(cat("block ", id, " has a negative count"));
    if (held(id)) ++live;
    if (held(id) == (seen[id] != 0)) fail(cat("block ", id, " is neither free, live nor cached, or more than one"));
  }
  if (free != num_free_ || cached != num_cached_ || free + live + cached != size()) {
    fail(cat("free ", free, " + live ", live, " + cached ", cached, " against ", num_free_, " free, ", num_cached_,
             " cached of ", size()));
  }
}

}  // namespace octavo
