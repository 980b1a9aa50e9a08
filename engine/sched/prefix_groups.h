#pragma once
#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace octavo {

// Positions per attention partition: the unit of shared-prefix attention, equal to the backends' kAttentionPartition.
inline constexpr int kPrefixPartition = 128;

// Finds the rows of a plan whose block tables start with the same physical blocks and fills plan.prefix_groups.
// A row joins at most one group; rows that share more form the deeper group when that saves more reads.
class PrefixGrouper {
 public:
  // `num_blocks`: of the first KV group.
  PrefixGrouper(int block_size, int num_blocks)
      : blocks_per_partition_(kPrefixPartition / block_size), first_row_(num_blocks, -1) {}
  void group(StepPlan& plan);

 private:
  bool same_partition(const StepPlan& plan, int a, int b, int partition) const;
  const int32_t* table(const StepPlan& plan, int group, int row) const;
  int whole_partitions(const StepPlan& plan, int row) const { return plan.rows[row].first_pos / kPrefixPartition; }
  int64_t split(int begin, int end);
  void emit(StepPlan& plan);

  struct Range {
    int begin, end, partitions;  // of order_
  };
  int blocks_per_partition_;
  std::vector<int32_t> first_row_;  // [blocks]: the row whose first partition ends there, else -1
  std::vector<int32_t> order_;      // rows, those with equal leading blocks side by side
  std::vector<int32_t> shared_;     // [order_]: leading partitions equal to those of the row before
  std::vector<Range> ranges_;
  std::vector<PrefixGroup> spare_;  // storage of groups, kept warm
};

}  // namespace octavo
