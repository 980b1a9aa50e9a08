#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/params.h"

namespace octavo {

// What the executor makes of a StepPlan for the model: flat device views, no sequence ids.
struct ForwardBatch {
  struct Group {
    const int32_t* slots = nullptr;      // [num_tokens], -1: no write
    std::span<const AttentionRow> rows;  // one per plan row; block tables of this group
  };
  int num_tokens = 0;
  const int32_t* tokens = nullptr;     // [num_tokens]
  const int32_t* positions = nullptr;  // [num_tokens]
  std::span<const Group> groups;       // one per KV group
  std::span<const AttentionPrefixGroup> prefix_groups;
  std::span<const int32_t> logit_tokens;  // indices of the tokens whose logits are wanted, ascending
  float* logits = nullptr;                // [logit_tokens.size(), vocab]
};

}  // namespace octavo
