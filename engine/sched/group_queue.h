#pragma once
#include <algorithm>
#include <vector>

#include "sched/sequence.h"

namespace octavo {

// Within a tenant: smaller priority first, unless the other waits long enough; then arrival.
struct WaitingOrder {
  bool operator()(const SequenceGroup* a, const SequenceGroup* b) const {
    return a->key != b->key ? a->key < b->key : a->arrival < b->arrival;
  }
};

// Most important first; the last is the first to be preempted.
struct RunningOrder {
  bool operator()(const SequenceGroup* a, const SequenceGroup* b) const {
    return a->rank != b->rank ? a->rank < b->rank : a->arrival < b->arrival;
  }
};

// Groups in a total order. The fields that Order reads change only while a group is outside.
template <class Order>
class GroupQueue {
 public:
  size_t size() const { return groups_.size(); }
  bool empty() const { return groups_.empty(); }
  SequenceGroup* operator[](size_t i) const { return groups_[i]; }
  SequenceGroup* back() const { return groups_.back(); }
  auto begin() const { return groups_.begin(); }
  auto end() const { return groups_.end(); }

  size_t capacity() const { return groups_.capacity(); }
  void reserve(size_t groups) { groups_.reserve(groups); }
  // Allocates nothing within what was reserved.
  void insert(SequenceGroup* g) { groups_.insert(std::ranges::lower_bound(groups_, g, Order{}), g); }
  void erase(SequenceGroup* g) { groups_.erase(std::ranges::lower_bound(groups_, g, Order{})); }

 private:
  std::vector<SequenceGroup*> groups_;
};

}  // namespace octavo
