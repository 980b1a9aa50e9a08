#pragma once
#include <cstddef>
#include <cstdint>
#include <utility>
#include <vector>

#include "base/prefetch.h"

namespace octavo {

// Values by id, for what is looked up several times for each sequence of a step: open addressing with linear probing,
// at most half full, in memory of its own that only grows. Ids count up, so that they spread by a multiplication.
// A pointer to a value is good until the next insert or erase.
template <class T>
class IdMap {
 public:
  const T* find(uint64_t id) const {
    if (slots_.empty()) return nullptr;
    for (size_t at = home(id);; at = next(at)) {
      if (slots_[at].id == id) return &slots_[at].value;
      if (slots_[at].id == kNone) return nullptr;
    }
  }
  T* find(uint64_t id) { return const_cast<T*>(std::as_const(*this).find(id)); }
  // Of what find() reads first.
  void prefetch(uint64_t id) const {
    if (!slots_.empty()) octavo::prefetch(slots_[home(id)]);
  }
  bool contains(uint64_t id) const { return find(id) != nullptr; }
  size_t size() const { return size_; }

  // Room for `more` ids: inserting them then neither allocates nor throws.
  void reserve_more(size_t more) {
    while (2 * (size_ + more) > slots_.size()) grow();
  }

  // Changes nothing when it throws. Replaces the value of an id that is there. The largest id there is marks a free
  // slot.
  T& insert(uint64_t id, T value) {
    if (T* there = find(id)) return *there = std::move(value);
    reserve_more(1);
    ++size_;
    Slot& slot = free_slot(id);
    slot.id = id;
    slot.value = std::move(value);
    return slot.value;
  }

  // Whether it was there. Those that were moved on because of it move back: there are no marks of what is gone.
  bool erase(uint64_t id) {
    const T* there = find(id);
    if (there == nullptr) return false;
    --size_;
    size_t hole = home(id);
    while (&slots_[hole].value != there) hole = next(hole);
    for (size_t at = next(hole); slots_[at].id != kNone; at = next(at)) {
      const size_t distance = (at - home(slots_[at].id)) & (slots_.size() - 1);
      if (distance < ((at - hole) & (slots_.size() - 1))) continue;
      slots_[hole] = std::move(slots_[at]);
      hole = at;
    }
    slots_[hole] = {};
    return true;
  }

  // body(id, value) for each, in no order. It must not insert or erase.
  template <class Body>
  void for_each(Body body) {
    for (Slot& slot : slots_)
      if (slot.id != kNone) body(slot.id, slot.value);
  }

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};
  struct Slot {
    uint64_t id = kNone;
    T value{};
  };

  size_t home(uint64_t id) const { return static_cast<size_t>((id * 0x9e3779b97f4a7c15u) >> 32) & (slots_.size() - 1); }
  size_t next(size_t at) const { return (at + 1) & (slots_.size() - 1); }
  Slot& free_slot(uint64_t id) {
    size_t at = home(id);
    while (slots_[at].id != kNone) at = next(at);
    return slots_[at];
  }
  void grow() {
    std::vector<Slot> old(slots_.empty() ? 16 : 2 * slots_.size());
    old.swap(slots_);
    for (Slot& slot : old)
      if (slot.id != kNone) free_slot(slot.id) = std::move(slot);
  }

  std::vector<Slot> slots_;  // a power of two
  size_t size_ = 0;
};

}  // namespace octavo
