#include "cache/block_table.h"

namespace octavo {

BlockTable& BlockTable::operator=(BlockTable&& other) noexcept {
  if (this != &other) {
    clear();
    pool_ = other.pool_;
    ids_ = std::move(other.ids_);
    other.ids_.clear();
    first_ = std::exchange(other.first_, 0);
  }
  return *this;
}

BlockTable BlockTable::fork(int blocks) const {
  BlockTable copy(*pool_);
  copy.ids_.assign(ids_.begin(), ids_.begin() + blocks);
  copy.first_ = first_ < blocks ? first_ : blocks;
  for (const BlockId id : copy.ids_) {
    if (id != kNoBlock) pool_->add_ref(id);
  }
  return copy;
}

void BlockTable::append(BlockRef block) { ids_.push_back(block.release()); }

BlockRef BlockTable::pop_back() {
  const BlockId id = ids_.back();
  ids_.pop_back();
  if (first_ > size()) first_ = size();
  if (id == kNoBlock) return {};
  BlockRef share = pool_->share(id);
  pool_->drop_ref(id);
  return share;
}

BlockRef BlockTable::replace(int i, BlockRef block) {
  const BlockId old = ids_[i];
  BlockRef share = pool_->share(old);
  pool_->drop_ref(old);
  ids_[i] = block.release();
  return share;
}

BlockRef BlockTable::drop_front() {
  const BlockId id = std::exchange(ids_[first_], kNoBlock);
  ++first_;
  BlockRef share = pool_->share(id);
  pool_->drop_ref(id);
  return share;
}

void BlockTable::clear() {
  while (!ids_.empty()) {
    const BlockId id = ids_.back();
    ids_.pop_back();
    if (id != kNoBlock) pool_->drop_ref(id);
  }
  first_ = 0;
}

CopyOnWrite BlockTable::copy_on_write(int i, int slots, BlockRef fresh) {
  CopyOnWrite copy{ids_[i], fresh.id(), slots, pool_->pin(ids_[i])};
  replace(i, std::move(fresh));
  return copy;
}

}  // namespace octavo
