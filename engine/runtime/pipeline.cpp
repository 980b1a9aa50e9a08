// The steps under way: as many as the executor has slots for, planned ahead of the tokens that they need.
#include <algorithm>
#include <bit>

#include "base/clock.h"
#include "runtime/step_loop.h"

namespace octavo {

bool StepLoop::step() {
  if (lost_) {
    end_all(lost_);
    return true;
  }
  bool moved = false;
  while (may_submit() && submit_next(moved)) {
  }
  if (under_way_.empty()) return moved;
  finish_oldest();
  return true;
}

void StepLoop::drain() {
  while (!under_way_.empty()) finish_oldest();
}

// Behind a step that could not be submitted nothing is: it is undone once those before it have ended.
bool StepLoop::may_submit() const {
  if (under_way_.empty()) return true;
  if (static_cast<int>(under_way_.size()) == executor_.slots()) return false;
  return !under_way_.back().failure && scheduler_.can_plan_ahead();
}

// False when nothing can be planned now. `moved`: requests ended.
bool StepLoop::submit_next(bool& moved) {
  const double begin = monotonic_seconds();
  const StepPlan* plan = nullptr;
  const Reason why = failures_.of([&] {
    const Trace::Span span(phases_.plan);
    plan = scheduler_.plan();
  });
  moved |= take_events();
  if (why) {
    fail_plan(why);
    return false;
  }
  failed_plans_ = 0;
  if (!plan) return false;
  const double planned = monotonic_seconds();
  StepUnderWay& step = under_way_.emplace_back(plan, next_slot_, nullptr);
  next_slot_ = (next_slot_ + 1) % executor_.slots();
  step.failure = failures_.of([&] {
    const Trace::Span span(phases_.execute);
    executor_.submit(*plan, step.slot);
  });
  stats_.host_ns += static_cast<int64_t>((planned - begin) * 1e9);
  const auto submitting = static_cast<int64_t>((monotonic_seconds() - planned) * 1e9);
  stats_.execute_ns += submitting;
  stats_.submit_ns += submitting;
  return true;
}

void StepLoop::finish_oldest() {
  const double begin = monotonic_seconds();
  const StepUnderWay step = under_way_.front();
  const StepResult* result = nullptr;
  Reason failure = step.failure;
  if (!failure) {
    failure = failures_.of([&] {
      const Trace::Span span(phases_.execute);
      result = &executor_.wait(step.slot);
    });
  }
  if (failure) fail_step(*step.plan, failure);
  const double executed = monotonic_seconds();
  stats_.last_step = executed;
  ++stats_.steps;
  if (result) {
    under_way_.erase(under_way_.begin());
    unexplained_failures_ = 0;
    const size_t tokens = step.plan->tokens.size();
    stats_.step_tokens += static_cast<int64_t>(tokens);
    const size_t size = tokens > 1 ? std::bit_width(tokens - 1) : 0;
    ++stats_.step_sizes[std::min(size, stats_.step_sizes.size() - 1)];
    if (const Reason why = failures_.persist([&] { commit(*step.plan, *result); })) abandon(*step.plan, why);
    if (step_limit_ > 0 || chunk_limit_ > 0) regrow();
  }
  stats_.execute_ns += static_cast<int64_t>((executed - begin) * 1e9);
  stats_.host_ns += static_cast<int64_t>((monotonic_seconds() - executed) * 1e9);
}

}  // namespace octavo
