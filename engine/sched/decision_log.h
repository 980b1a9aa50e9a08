#pragma once
#include <array>
#include <atomic>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace octavo {

// What came in and what was decided. The first six kinds are all that a scheduler is told, so that requests that share
// no prefix and have no beams can be replayed, from the beginning or from a request that found nothing else there.
enum class DecisionKind : uint8_t {
  kAdd,       // prompt tokens, most new tokens, priority, tenant, first sequence, sequences, prompt logits, lockstep,
              // whether it found nothing else there and no limit
  kCancel,    //
  kCommit,    // kForced, kEnd and kFault behind it belong to it
  kRollback,  //
  kLimit,     // most tokens of a step, most of one prompt in it
  kForced,    // sequence, tokens that it got besides the one that was drawn
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
  static constexpr size_t kValues = 9;
  DecisionKind kind = DecisionKind::kAdd;
  StepId step = 0;  // the one in question; kAdd, kCancel: the next
  RequestId request = 0;
  std::array<int64_t, kValues> values{};
};

// The last decisions, in a ring. One thread notes; any other may read at any time, also a signal handler: a sequence
// lock for each entry (Boehm, MSPC '12) tells what was overwritten meanwhile.
class DecisionLog {
 public:
  explicit DecisionLog(size_t capacity) : ring_(capacity) {}

  void note(DecisionKind kind, StepId step, RequestId request, std::array<int64_t, Decision::kValues> values = {});
  uint64_t total() const { return total_.load(std::memory_order_acquire); }  // ever noted
  // The one with this number, counted from 0. False: it is not there yet or no more.
  bool read(uint64_t number, Decision& out) const;
  std::vector<Decision> last() const;  // oldest first

 private:
  struct Entry {
    std::atomic<uint64_t> next{0};  // the number after its own; 0: it is being written
    std::atomic<uint64_t> kind, step, request;
    std::array<std::atomic<int64_t>, Decision::kValues> values;
  };
  std::vector<Entry> ring_;
  std::atomic<uint64_t> total_{0};
};

}  // namespace octavo
