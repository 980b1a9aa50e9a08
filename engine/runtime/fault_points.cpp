#include "runtime/fault_points.h"

#include <algorithm>
#include <chrono>
#include <new>
#include <stdexcept>
#include <thread>

#include "base/errors.h"
#include "base/format.h"

namespace octavo {

namespace {

// What a fault does to the thread that meets it.
void strike(const Fault& fault) {
  switch (fault.kind) {
    case Fault::Kind::kThrow:
      throw std::runtime_error("a fault was provoked");
    case Fault::Kind::kOutOfMemory:
      throw std::bad_alloc();
    case Fault::Kind::kDeviceLost:
      throw Error(ErrorCode::kDeviceLost, "cuda", "the loss of the device was provoked");
    case Fault::Kind::kHold:
      std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
      break;
    case Fault::Kind::kNonFinite:
    case Fault::Kind::kGrammar:
      break;  // concern what a step gave
  }
}

bool row_has(const StepPlan& plan, const PlanRow& row, int32_t token) {
  const auto first = plan.tokens.begin() + row.token_offset;
  return token < 0 || std::find(first, first + row.n_tokens, token) != first + row.n_tokens;
}

bool plan_has(const StepPlan& plan, const Fault& fault) {
  return static_cast<int64_t>(plan.tokens.size()) > fault.larger_than &&
         std::any_of(plan.rows.begin(), plan.rows.end(),
                     [&](const PlanRow& row) { return row_has(plan, row, fault.token); });
}

}  // namespace

void FaultPoints::arm(const Fault& fault, Trace& trace) {
  std::string known;
  for (Trace::Phase& phase : trace.phases()) {
    known += cat(known.empty() ? "" : ", ", phase.name);
    if (phase.name != fault.phase) continue;
    phase.on_enter = [this, left = fault]() mutable {
      if (left.times <= 0) return;
      if (left.token >= 0 && (plan_ == nullptr || !plan_has(*plan_, left))) return;
      if (left.after > 0) {
        --left.after;
        return;
      }
      --left.times;
      strike(left);
    };
    return;
  }
  throw Error(ErrorCode::kInvalidArgument, "phase", cat("phase must be one of ", known, "; got '", fault.phase, "'"));
}

void FaultPoints::submit(const StepPlan& plan, int slot) {
  poisoned_[slot].clear();
  plan_ = &plan;
  for (Fault& fault : faults_) {
    if (fault.times <= 0 || !plan_has(plan, fault)) continue;
    --fault.times;
    strike(fault);
    if (fault.kind != Fault::Kind::kNonFinite && fault.kind != Fault::Kind::kGrammar) continue;
    for (size_t i = 0; i < plan.samples.size(); ++i)
      if (row_has(plan, plan.rows[plan.samples[i].row], fault.token))
        poisoned_[slot].push_back(
            {i, fault.kind == Fault::Kind::kGrammar ? SampleStatus::kGrammar : SampleStatus::kNonFinite});
  }
  inner_->submit(plan, slot);
}

const StepResult& FaultPoints::wait(int slot) {
  const StepResult& result = inner_->wait(slot);
  if (poisoned_[slot].empty()) return result;
  altered_ = result;
  for (const Poisoned& p : poisoned_[slot]) {
    altered_.samples[p.sample].status = p.status;
    altered_.samples[p.sample].why = "a failure of the grammar was provoked";
  }
  return altered_;
}

}  // namespace octavo
