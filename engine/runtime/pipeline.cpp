// The steps under way: as many as the executor has slots for, planned ahead of the tokens that they need.
#include <algorithm>
#include <bit>
#include <new>
#include <utility>

#include "base/clock.h"
#include "base/format.h"
#include "runtime/step_loop.h"

namespace octavo {

namespace {

// What `run` throws, as a refusal.
template <class Run>
std::optional<Refusal> refusal_of(Run&& run) {
  try {
    run();
    return std::nullopt;
  } catch (const Error& e) {
    return Refusal{e.code(), e.param(), e.what(), 0, 0};
  } catch (const std::bad_alloc&) {
    return Refusal{ErrorCode::kOutOfMemory, "memory", "the memory does not suffice for a step", 0, 0};
  } catch (const std::exception& e) {
    return Refusal{ErrorCode::kInternal, "step", cat("a step failed: ", e.what()), 0, 0};
  }
}

}  // namespace

bool StepLoop::step() {
  if (lost_) {
    end_all(*lost_);
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

// False when nothing can be planned. `moved`: requests ended.
bool StepLoop::submit_next(bool& moved) {
  const double begin = monotonic_seconds();
  const StepPlan* plan = nullptr;
  {
    const Trace::Span span(phases_.plan);
    plan = scheduler_.plan();
    moved |= take_events();
  }
  if (!plan) return false;
  const double planned = monotonic_seconds();
  StepUnderWay& step = under_way_.emplace_back(plan, next_slot_);
  next_slot_ = (next_slot_ + 1) % executor_.slots();
  {
    const Trace::Span span(phases_.execute);
    step.failure = refusal_of([&] { executor_.submit(*plan, step.slot); });
  }
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
  std::optional<Refusal> failure = step.failure;
  if (!failure) {
    const Trace::Span span(phases_.execute);
    failure = refusal_of([&] { result = &executor_.wait(step.slot); });
  }
  if (failure) fail_step(*step.plan, *failure);
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
    commit(*step.plan, *result);
    if (step_limit_ > 0 || chunk_limit_ > 0) regrow();
  }
  stats_.execute_ns += static_cast<int64_t>((executed - begin) * 1e9);
  stats_.host_ns += static_cast<int64_t>((monotonic_seconds() - executed) * 1e9);
}

}  // namespace octavo
