#pragma once
#include <cstdint>
#include <span>
#include <vector>

#include "ops/params.h"

namespace octavo {

// What the executor makes of a StepPlan for the model, in host memory: no sequence ids.
struct HostBatch {
  struct Group {
    std::span<const int32_t> slots;      // [num_tokens], -1: no write
    std::span<const AttentionRow> rows;  // one per plan row; their block tables lie in `tables`
    std::span<const int32_t> tables;
    std::span<const SlotCopy> copies;  // done before the forward pass
  };
  std::span<const int32_t> tokens;     // [num_tokens]
  std::span<const int32_t> positions;  // [num_tokens]
  std::span<const Group> groups;       // one per KV group
  std::span<const AttentionPrefixGroup> prefix_groups;
  std::span<const int32_t> logit_tokens;  // indices of the tokens whose logits are wanted, ascending
};

// The same where the device reads it. The lengths are the host's, the arrays the device's.
struct ForwardBatch {
  struct Rows {
    const AttentionRow* rows = nullptr;  // [num_rows]
    int num_rows = 0;
    const AttentionPrefixGroup* prefix_groups = nullptr;
    int num_prefix_groups = 0;
    AttentionExtent extent;
  };
  struct Group {
    const int32_t* slots = nullptr;  // [num_tokens], -1: no write
    Rows attention;
    const SlotCopy* copies = nullptr;
    int num_copies = 0;
  };
  int num_tokens = 0;
  const int32_t* tokens = nullptr;     // [num_tokens]
  const int32_t* positions = nullptr;  // [num_tokens]
  std::span<const Group> groups;       // one per KV group
  // The last layer's rows cut down to the tokens whose logits are wanted; empty where all of them are.
  Rows wanted;
  const int32_t* logit_tokens = nullptr;
  int num_logits = 0;
  float* logits = nullptr;  // [num_logits, vocab]
  // Of each row's logits only the greatest are read, all that are equally great; others may be anything smaller.
  bool greatest_only = false;
};

}  // namespace octavo
