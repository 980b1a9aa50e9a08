#include "runtime/fault_points.h"

#include <algorithm>
#include <chrono>
#include <stdexcept>
#include <thread>

#include "base/errors.h"

namespace octavo {

namespace {

bool row_has(const StepPlan& plan, const PlanRow& row, int32_t token) {
  const auto first = plan.tokens.begin() + row.token_offset;
  return token < 0 || std::find(first, first + row.n_tokens, token) != first + row.n_tokens;
}

}  // namespace

void FaultPoints::submit(const StepPlan& plan, int slot) {
  poisoned_[slot].clear();
  for (Fault& fault : faults_) {
    const bool large = static_cast<int64_t>(plan.tokens.size()) > fault.larger_than;
    const bool struck = fault.times > 0 && large &&
                        std::any_of(plan.rows.begin(), plan.rows.end(),
                                    [&](const PlanRow& row) { return row_has(plan, row, fault.token); });
    if (!struck) continue;
    --fault.times;
    switch (fault.kind) {
      case Fault::Kind::kThrow:
        throw std::runtime_error("a fault was provoked");
      case Fault::Kind::kOutOfMemory:
        throw Error(ErrorCode::kOutOfMemory, "memory", "an allocation failure was provoked");
      case Fault::Kind::kHold:
        std::this_thread::sleep_for(std::chrono::duration<double>(fault.seconds));
        break;
      case Fault::Kind::kNonFinite:
      case Fault::Kind::kGrammar:
        for (size_t i = 0; i < plan.samples.size(); ++i)
          if (row_has(plan, plan.rows[plan.samples[i].row], fault.token))
            poisoned_[slot].push_back(
                {i, fault.kind == Fault::Kind::kGrammar ? SampleStatus::kGrammar : SampleStatus::kNonFinite});
        break;
    }
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
