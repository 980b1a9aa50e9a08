// What goes wrong in a step: who ends for it, and how much the next steps dare.
#include <algorithm>

#include "base/format.h"
#include "runtime/step_isolation.h"
#include "runtime/step_loop.h"

namespace octavo {

// One request's own fault: it ends, the company's step counts.
void StepLoop::fault(Request& request, SeqId seq, SampleStatus status, int32_t position, const std::string& told) {
  outcome_.faults.push_back({seq});
  Refusal why{ErrorCode::kInternal, "logits", cat("the model's logits for position ", position, " are not finite"),
              position, 0};
  if (status == SampleStatus::kGrammar) {
    why = {ErrorCode::kInvalidArgument, "structured_outputs", cat("at position ", position, " ", told), position, 0};
  } else if (status == SampleStatus::kAllMasked) {
    const bool grammar = request.params->grammar != nullptr;
    why = {ErrorCode::kInvalidArgument, grammar ? "structured_outputs" : "allowed_token_ids",
           cat("no token is left at position ", position, grammar ? ": the grammar, " : ": ",
               "allowed_token_ids, bad_words and min_tokens exclude all of them"),
           position, 0};
  } else {
    ++stats_.non_finite_rows;
  }
  end_request(request, Finish::kError, &why);
}

// The oldest step under way threw: it is undone, and the requests that make it throw on their own are ended with its
// cause. When none does, the step is tried again; a fault that stays ends every request in it, so that the engine never
// spins. A lost device takes all requests with it, at once and later. A step behind it built on it: it is undone too,
// whatever came of it.
void StepLoop::fail_step(const StepPlan& plan, const Refusal& why) {
  ++stats_.failed_steps;
  for (size_t i = 1; i < under_way_.size(); ++i) {
    if (under_way_[i].failure) continue;
    try {
      executor_.wait(under_way_[i].slot);
    } catch (const std::exception&) {
    }
  }
  under_way_.clear();
  if (why.code == ErrorCode::kDeviceLost) {
    stats_.device_lost = why.message;
    lost_ = why;
    scheduler_.rollback(plan.step);
    return end_all(why);
  }
  std::vector<SeqId> guilty = find_guilty(executor_, with_known_tokens(plan));
  if (why.code == ErrorCode::kOutOfMemory && shrink(plan, guilty)) {
    ++stats_.shrunk_steps;
  } else if (guilty.empty() && ++unexplained_failures_ > kRetries)
    for (const PlanRow& row : plan.rows) guilty.push_back(row.seq);
  scheduler_.rollback(plan.step);
  for (SeqId seq : guilty) {
    const Owner* owner = owners_.find(seq);
    if (owner == nullptr) continue;
    Request& request = *owner->request;
    scheduler_.cancel(request.id);
    end_request(request, Finish::kError, &why);
  }
}

void StepLoop::end_all(const Refusal& why) {
  std::vector<RequestId> ids;
  for (const auto& [id, request] : requests_) ids.push_back(id);
  for (const RequestId id : ids) {
    end_request(*requests_.at(id), Finish::kError, &why);
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
