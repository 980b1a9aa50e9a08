#pragma once
#include <functional>
#include <map>
#include <memory>
#include <utility>

#include "ops/backend.h"
#include "plan/step_plan.h"

namespace octavo {

// Recorded decode steps of one step slot, by the number of rows and the longest context, both rounded up.
class StepGraphs {
 public:
  StepGraphs(Backend& backend, Queue& queue, int max_rows, int max_positions)
      : backend_(backend), queue_(queue), max_rows_(max_rows), max_positions_(max_positions) {}

  // The rows that the plan's batch is to be padded to; 0 where the step is not what a graph can do: rows of one token,
  // all sampled, without copies and shared prefixes.
  int rows_for(const StepPlan& plan) const;
  // The context that a launch is to assume.
  int round_context(int positions) const;

  // Carries out `forward`, which is the same for equal rows and context: as it is the first time, as a graph from then
  // on.
  void run(int rows, int context, const std::function<void()>& forward);

  // What was recorded read or wrote memory that is elsewhere now.
  void forget() { entries_.clear(); }

 private:
  struct Entry {
    bool warm = false;
    std::unique_ptr<DeviceGraph> graph;
  };

  Backend& backend_;
  Queue& queue_;
  int max_rows_;
  int max_positions_;
  std::map<std::pair<int, int>, Entry> entries_;
};

}  // namespace octavo
