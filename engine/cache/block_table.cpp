#include "cache/block_table.h"

#include <algorithm>

#include "base/reserve.h"

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

void BlockTable::share_front(const BlockTable& from, int blocks) {
  ids_.assign(from.ids_.begin(), from.ids_.begin() + blocks);
  first_ = std::min(from.first_, blocks);
  for (const BlockId id : ids_) {
    if (id != kNoBlock) pool_->add_ref(id);
  }
}

BlockTable BlockTable::fork() const {
  BlockTable copy(*pool_);
  copy.share_front(*this, size());
  return copy;
}

void BlockTable::reserve(int blocks) {
  if (blocks > size()) reserve_more(ids_, static_cast<size_t>(blocks - size()));
}

void BlockTable::append(BlockRef block) {
  ids_.push_back(block.id());
  block.release();
}

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
