#pragma once
#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace octavo {

// What came in and what was decided. The first five kinds are all that a scheduler is told, so that requests that share
// no prefix and have no beams can be replayed.
enum class DecisionKind : uint8_t {
  kAdd,       // prompt tokens, most new tokens, priority, tenant, first sequence, sequences, prompt logits
  kCancel,    //
  kCommit,    // kEnd and kFault behind it belong to it
  kRollback,  //
  kLimit,     // most tokens of a step, most of one prompt in it
  kPlan,      // rows, tokens, samples, why admission stopped; no rows: nothing could be planned
  kAdmit,     // tokens that need no computing, tokens in its first step
  kEvict,     // for the sake of which request; it leaves once no step in flight names it
  kPreempt,   // tokens computed so far
  kEnd,       // sequence
  kFault,     // sequence
  kFail,      //
};

// Integers only, no token of a prompt.
struct Decision {
  DecisionKind kind = DecisionKind::kAdd;
  StepId step = 0;  // the one in question; kAdd, kCancel: the next
  RequestId request = 0;
  std::array<int64_t, 7> values{};
};

// The last decisions, in a ring.
class DecisionLog {
 public:
  explicit DecisionLog(std::size_t capacity) : ring_(capacity) {}

  void note(DecisionKind kind, StepId step, RequestId request, std::array<int64_t, 7> values = {}) {
    ring_[total_++ % ring_.size()] = {kind, step, request, values};
  }
  uint64_t total() const { return total_; }  // ever noted
  std::vector<Decision> last() const;        // oldest first

 private:
  std::vector<Decision> ring_;
  uint64_t total_ = 0;
};

}  // namespace octavo
