#include "sched/prefix_groups.h"

#include <algorithm>
#include <cstring>

namespace octavo {

const int32_t* PrefixGrouper::table(const StepPlan& plan, int group, int row) const {
  return plan.groups[group].tables.data() + plan.groups[group].table_offsets[row];
}

bool PrefixGrouper::same_partition(const StepPlan& plan, int a, int b, int partition) const {
  const size_t at = size_t(partition) * blocks_per_partition_;
  for (int g = 0; g < static_cast<int>(plan.groups.size()); ++g) {
    if (std::memcmp(table(plan, g, a) + at, table(plan, g, b) + at, blocks_per_partition_ * sizeof(int32_t)) != 0) {
      return false;
    }
  }
  return true;
}

void PrefixGrouper::group(StepPlan& plan) {
  while (!plan.prefix_groups.empty()) {
    spare_.push_back(std::move(plan.prefix_groups.back()));
    plan.prefix_groups.pop_back();
  }
  if (blocks_per_partition_ < 1) return;  // a block longer than a partition

  // Rows that share nothing are the usual case: look at one block per row before sorting anything.
  const int last = blocks_per_partition_ - 1;
  order_.clear();
  order_.reserve(plan.rows.size());
  bool any = false;
  for (int r = 0; r < static_cast<int>(plan.rows.size()); ++r) {
    if (whole_partitions(plan, r) == 0) continue;
    const int32_t block = table(plan, 0, r)[last];
    if (block < 0) continue;  // left the window
    any |= first_row_[block] >= 0;
    first_row_[block] = r;
    order_.push_back(r);
  }
  for (const int32_t r : order_) first_row_[table(plan, 0, r)[last]] = -1;
  if (!any) return;

  std::ranges::sort(order_, [&](int a, int b) {
    const int whole = std::min(whole_partitions(plan, a), whole_partitions(plan, b));
    for (int p = 0; p < whole; ++p) {
      const int32_t x = table(plan, 0, a)[p * blocks_per_partition_ + last];
      const int32_t y = table(plan, 0, b)[p * blocks_per_partition_ + last];
      if (x != y) return x < y;
    }
    const int wa = whole_partitions(plan, a), wb = whole_partitions(plan, b);
    return wa != wb ? wa < wb : a < b;
  });
  shared_.assign(order_.size(), 0);
  for (size_t i = 1; i < order_.size(); ++i) {
    const int whole = std::min(whole_partitions(plan, order_[i - 1]), whole_partitions(plan, order_[i]));
    while (shared_[i] < whole && same_partition(plan, order_[i - 1], order_[i], shared_[i])) ++shared_[i];
  }
  ranges_.clear();
  split(0, static_cast<int>(order_.size()));
  emit(plan);
}

// The best grouping of order_[begin, end), goes to ranges_. Returns the partitions
// that need not be read again: a group of r rows with p partitions saves (r - 1) * p.
int64_t PrefixGrouper::split(int begin, int end) {
  if (end - begin < 2) return 0;
  int common = shared_[begin + 1];
  for (int i = begin + 2; i < end; ++i) common = std::min(common, shared_[i]);
  const int64_t whole = int64_t{end - begin - 1} * common;
  const size_t mark = ranges_.size();
  int64_t apart = 0;
  int from = begin;
  for (int i = begin + 1; i <= end; ++i) {
    if (i < end && shared_[i] > common) continue;
    apart += split(from, i);
    from = i;
  }
  if (whole < apart || common == 0) return apart;
  ranges_.resize(mark);
  ranges_.push_back({begin, end, common});
  return whole;
}

void PrefixGrouper::emit(StepPlan& plan) {
  for (const Range& range : ranges_) {
    PrefixGroup group;
    if (!spare_.empty()) {
      group = std::move(spare_.back());
      spare_.pop_back();
    }
    group.rows.assign(order_.begin() + range.begin, order_.begin() + range.end);
    std::ranges::sort(group.rows);
    group.partitions = range.partitions;
    plan.prefix_groups.push_back(std::move(group));
  }
}

}  // namespace octavo
