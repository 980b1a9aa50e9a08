#pragma once
#include <cstdint>
#include <vector>

#include "plan/step_plan.h"

namespace octavo {

// Where what an operator declared common to all is cached. No request has it as its own.
inline constexpr uint64_t kSharedNamespace = ~uint64_t{0};

// What the scheduler needs to know about a request (a sequence group): integers only.
struct RequestSpec {
  RequestId id = 0;
  std::vector<SeqId> seqs;        // n branches; seqs[0] computes the prompt, the others fork from it
  std::vector<int32_t> prompt;    // token ids, at least one
  uint64_t prefix_namespace = 0;  // identity for the prefix cache: equal prompts in different namespaces never share,
  int32_t shared_tokens = 0;      // but for the full blocks of its first tokens, so many, which all namespaces share
  uint64_t tenant = 0;            // who pays: tenants share the steps fairly
  int32_t priority = 0;           // within its tenant: smaller runs first (vLLM's meaning)
  int32_t max_new_tokens = 1;     // per branch
  bool prompt_logits = false;     // logits for every prompt token: the prompt is recomputed even where it is cached
  bool lockstep = false;          // a row is planned only once the token before it is known
  SeqId source = 0;  // a sequence that has the beginning of the prompt in common: while it runs, its blocks are shared
                     // whether or not they are indexed (0: none)
};

}  // namespace octavo
