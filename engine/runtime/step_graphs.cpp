#include "runtime/step_graphs.h"

#include <algorithm>
#include <bit>

namespace octavo {

namespace {

// 1, 2, 4, 8, 16, then steps that waste less than an eighth.
int round_rows(int rows) {
  if (rows <= 16) return static_cast<int>(std::bit_ceil(static_cast<unsigned>(rows)));
  const int step = std::max(8, static_cast<int>(std::bit_floor(static_cast<unsigned>(rows - 1))) / 8);
  return (rows + step - 1) / step * step;
}

}  // namespace

int StepGraphs::rows_for(const StepPlan& plan) const {
  const auto decodes = [](const PlanRow& row) { return row.n_tokens == 1 && row.logits == LogitsWanted::kLast; };
  if (!plan.copies.empty() || !plan.prefix_groups.empty() || plan.samples.size() != plan.rows.size() ||
      !std::ranges::all_of(plan.rows, decodes))
    return 0;
  return std::min(round_rows(static_cast<int>(plan.rows.size())), max_rows_);
}

int StepGraphs::round_context(int positions) const {
  constexpr int kLeast = 256;
  return std::clamp(static_cast<int>(std::bit_ceil(static_cast<unsigned>(positions))), std::min(kLeast, max_positions_),
                    max_positions_);
}

void StepGraphs::run(int rows, int context, const std::function<void()>& forward) {
  Entry& entry = entries_[{rows, context}];
  if (!entry.graph) {
    if (!entry.warm) {
      forward();
      entry.warm = true;
      return;
    }
    DeviceSteps& steps = *backend_.device_steps();
    steps.begin_recording(queue_);
    try {
      forward();
    } catch (...) {
      try {
        steps.end_recording(queue_);
      } catch (...) {
      }
      throw;
    }
    entry.graph = steps.end_recording(queue_);
  }
  entry.graph->launch(queue_);
}

}  // namespace octavo
