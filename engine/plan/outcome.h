#pragma once
#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace octavo {

// How one sampled sequence goes on after a step. `parent` was sampled; `child` is the sequence that holds `token`
// from now on: the parent itself, or a new id that forks the parent's block tables (n > 1, beams, public fork).
// A sampled parent without any outcome naming it as child ends there. Outcomes of one step are applied together,
// so that beams may be reordered without copying.
struct Outcome {
  SeqId parent = 0;
  SeqId child = 0;
  int32_t token = -1;
  bool finished = false;  // the last token is final (end token, stop, length): the child's blocks are released
  // Tokens behind `token` that need no sampling: [forced_first, + num_forced) of StepOutcome::forced.
  int32_t forced_first = 0;
  int32_t num_forced = 0;
};

// A request whose step failed on its own (non-finite logits, an injected fault): it ends, the others go on.
struct RowFault {
  SeqId seq = 0;
};

struct StepOutcome {
  std::vector<Outcome> outcomes;
  std::vector<RowFault> faults;
  std::vector<int32_t> forced;
};

}  // namespace octavo
