// What goes wrong in a step: who ends for it, and how much the next steps dare.
#include <algorithm>

#include "base/format.h"
#include "runtime/step_isolation.h"
#include "runtime/step_loop.h"

namespace octavo {

// One request's own fault: it ends, the company's step counts.
void StepLoop::fault(Request& request, SeqId seq, const Reason& why) {
  outcome_.faults.push_back({seq});
  end_request(request, Finish::kError, why);
}

// Why a sample ends its request; null when it does not.
Reason StepLoop::status_reason(const Request& request, SampleStatus status, int32_t position, const std::string& told) {
  if (status == SampleStatus::kOk) return nullptr;
  if (status == SampleStatus::kNonFinite) ++stats_.non_finite_rows;
  return failures_.explain([&]() -> Refusal {
    if (status == SampleStatus::kGrammar)
      return {ErrorCode::kInvalidArgument, "structured_outputs", cat("at position ", position, " ", told), position, 0};
    if (status == SampleStatus::kAllMasked) {
      const bool grammar = request.params->grammar != nullptr;
      return {ErrorCode::kInvalidArgument, grammar ? "structured_outputs" : "allowed_token_ids",
              cat("no token is left at position ", position, grammar ? ": the grammar, " : ": ",
                  "allowed_token_ids, bad_words and min_tokens exclude all of them"),
              position, 0};
    }
    return {ErrorCode::kInternal, "logits", cat("the model's logits for position ", position, " are not finite"),
            position, 0};
  });
}

// The step was executed and cannot be committed: its requests end. This takes no memory.
void StepLoop::abandon(const StepPlan& plan, const Reason& why) {
  ++stats_.failed_steps;
  outcome_.outcomes.clear();
  outcome_.faults.clear();
  outcome_.forced.clear();
  for (const PlanRow& row : plan.rows) {
    outcome_.faults.push_back({row.seq});
    if (const Owner* owner = owners_.find(row.seq)) end_request(*owner->request, Finish::kError, why);
  }
  scheduler_.commit(plan.step, outcome_);
}

// Nothing was planned and nothing has changed. It is tried again; a fault that stays ends every request.
void StepLoop::fail_plan(const Reason& why) {
  if (++failed_plans_ <= kPlanRetries) return;
  failed_plans_ = 0;
  end_all(why);
}

// The oldest step under way threw: it is undone, and the requests that make it throw on their own are ended with its
// cause. When none does, the step is tried again; a fault that stays ends every request in it, so that the engine never
// spins. A lost device takes all requests with it, at once and later. A step behind it built on it: it is undone too,
// whatever came of it.
void StepLoop::fail_step(const StepPlan& plan, const Reason& why) {
  ++stats_.failed_steps;
  for (size_t i = 1; i < under_way_.size(); ++i) {
    if (!under_way_[i].failure) failures_.of([&] { executor_.wait(under_way_[i].slot); });
  }
  under_way_.clear();
  if (why->code == ErrorCode::kDeviceLost) {
    lost_ = why;
    scheduler_.rollback(plan.step);
    return end_all(why);
  }
  guilty_.clear();
  if (failures_.of([&] { find_guilty(executor_, with_known_tokens(plan), guilty_); })) guilty_.clear();
  if (why->code == ErrorCode::kOutOfMemory && shrink(plan, guilty_)) {
    ++stats_.shrunk_steps;
  } else if (guilty_.empty() && ++unexplained_failures_ > kRetries) {
    for (const PlanRow& row : plan.rows) guilty_.push_back(row.seq);
  }
  scheduler_.rollback(plan.step);
  for (const SeqId seq : guilty_) {
    const Owner* owner = owners_.find(seq);
    if (owner == nullptr) continue;
    Request& request = *owner->request;
    scheduler_.cancel(request.id);
    end_request(request, Finish::kError, why);
  }
}

void StepLoop::end_all(const Reason& why) {
  for (const auto& [id, request] : requests_) {
    end_request(*request, Finish::kError, why);
    scheduler_.cancel(id);
  }
}

// The steps before it are committed, so that every token is known. Where a sequence has ended meanwhile it does not
// matter which: nobody reads what the row writes.
StepPlan StepLoop::with_known_tokens(const StepPlan& plan) const {
  StepPlan known = plan;
  for (PlanRow& row : known.rows) {
    if (row.from_row < 0) continue;
    const auto tokens = scheduler_.tokens(row.seq);
    const auto position = static_cast<size_t>(row.first_pos);
    known.tokens[row.token_offset] = position < tokens.size() ? tokens[position] : 0;
    row.from_row = -1;
  }
  return known;
}

// Memory is short. A prompt that alone is too much is computed in smaller pieces, and taken off the `guilty`; when only
// all rows together are, the steps get smaller. False where nothing can.
bool StepLoop::shrink(const StepPlan& plan, std::vector<SeqId>& guilty) {
  int32_t step = step_limit_;
  int32_t chunk = chunk_limit_;
  if (guilty.empty()) {
    step = static_cast<int32_t>(plan.tokens.size() / 2);
    if (step < 1 || (step_limit_ > 0 && step >= step_limit_)) return false;
  } else {
    for (const PlanRow& row : plan.rows) {
      if (row.n_tokens > 1 && std::erase(guilty, row.seq) > 0)
        chunk = std::min(chunk > 0 ? chunk : row.n_tokens, row.n_tokens / 2);
    }
    if (chunk == chunk_limit_) return false;
  }
  scheduler_.limit_steps(step_limit_ = step, chunk_limit_ = chunk);
  good_steps_ = 0;
  return true;
}

void StepLoop::regrow() {
  if (++good_steps_ < kStepsToRegrow) return;
  good_steps_ = 0;
  const auto grown = [&](int32_t limit) { return 2 * int64_t{limit} < config_.max_tokens_per_step ? 2 * limit : 0; };
  scheduler_.limit_steps(step_limit_ = grown(step_limit_), chunk_limit_ = grown(chunk_limit_));
}

}  // namespace octavo
