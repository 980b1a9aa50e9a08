#include "sched/names.h"

#include <cstddef>

namespace octavo {

const char* name_of(WaitReason why) {
  switch (why) {
    case WaitReason::kNextStep:
      return "next_step";
    case WaitReason::kNoBlocks:
      return "no_blocks";
    case WaitReason::kTokenBudget:
      return "token_budget";
    case WaitReason::kSequenceLimit:
      return "sequence_limit";
    case WaitReason::kPrefixLeader:
      return "prefix_in_flight";
    case WaitReason::kBehind:
      return "behind";
    case WaitReason::kTenantLimit:
      return "tenant_limit";
    case WaitReason::kBehindShare:
      return "behind_share";
  }
  return "?";
}

const char* name_of(RunReason why) {
  switch (why) {
    case RunReason::kOnTime:
      return "on_time";
    case RunReason::kTokenBudget:
      return "token_budget";
    case RunReason::kNoBlocks:
      return "no_blocks";
    case RunReason::kRecomputing:
      return "recomputing";
    case RunReason::kGivingWay:
      return "giving_way";
    case RunReason::kGrammar:
      return "grammar";
    case RunReason::kOthersGrammar:
      return "grammar_of_another";
  }
  return "?";
}

const DecisionShape& shape_of(DecisionKind kind) {
  using enum ValueType;
  static constexpr DecisionShape kShapes[] = {
      {"add",
       {{{"prompt_tokens"},
         {"max_new_tokens"},
         {"priority"},
         {"tenant", kUnsigned},
         {"first_sequence"},
         {"sequences"},
         {"prompt_logits", kFlag},
         {"lockstep", kFlag},
         {"alone", kFlag}}}},
      {"cancel", {}},
      {"commit", {}},
      {"rollback", {}},
      {"limit", {{{"step_tokens"}, {"chunk_tokens"}}}},
      {"forced", {{{"sequence"}, {"tokens"}}}},
      {"plan", {{{"rows"}, {"tokens"}, {"samples"}, {"queue_waits_for", kWaitReason}}}},
      {"admit", {{{"cached_tokens"}, {"tokens"}}}},
      {"evict", {{{"favoured"}}}},
      {"preempt", {{{"computed"}}}},
      {"end", {{{"sequence"}}}},
      {"fault", {{{"sequence"}}}},
      {"fail", {}},
  };
  return kShapes[static_cast<size_t>(kind)];
}

}  // namespace octavo
