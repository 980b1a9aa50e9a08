#pragma once
#include <cstdint>
#include <vector>

namespace octavo {

using RequestId = uint64_t;
using SeqId = uint64_t;
using StepId = uint64_t;

enum class LogitsWanted : uint8_t { kNone, kLast, kRange };

// Copy the first `slots` slots of block `src` into block `dst`, in every layer of `group`, before the forward pass.
struct BlockCopy {
  int32_t group = 0;
  int32_t src = 0;
  int32_t dst = 0;
  int32_t slots = 0;
};

// A run of consecutive tokens of one sequence. There are no prefill and decode kinds: a decode is a row of one token.
struct PlanRow {
  SeqId seq = 0;
  int32_t first_pos = 0;  // position of the first token
  int32_t n_tokens = 0;
  int32_t token_offset = 0;  // first token in StepPlan::tokens and in slots
  // When from_row >= 0 the row's single token is not known yet: it is what sample `from_row` of step `from_step` draws.
  StepId from_step = 0;
  int32_t from_row = -1;
  LogitsWanted logits = LogitsWanted::kNone;
  int32_t logits_first = 0;  // kRange: logits for tokens [logits_first, n_tokens) of the row
  int32_t adapter = -1;
};

// Rows that share the same leading physical blocks: attention over `partitions` leading partitions of 128 positions
// may be computed once for all of them. A hint: executing without it gives the same bits.
struct PrefixGroup {
  std::vector<int32_t> rows;
  int32_t partitions = 0;
};

// Draw one token for sampler state `state` from the logits of token `token` (index into StepPlan::tokens).
// Several samples may read one token's logits (n > 1, beams).
struct SampleRow {
  int32_t row = 0;       // index into rows
  int32_t token = 0;     // index into tokens whose logits are read
  SeqId state = 0;       // the sequence whose sampler state is used
  int32_t position = 0;  // absolute position of the token to be drawn (keys the random generator)
};

// What one step does, integers only: a tensor-parallel rank receives exactly this.
struct StepPlan {
  struct Group {
    std::vector<int32_t> slots;          // [num_tokens]; block * block_size + offset, -1: no write
    std::vector<int32_t> tables;         // block tables of all rows, one after the other
    std::vector<int32_t> table_offsets;  // [num_rows + 1] into tables
  };
  StepId step = 0;
  std::vector<BlockCopy> copies;
  std::vector<PlanRow> rows;
  std::vector<int32_t> tokens;  // [num_tokens]
  std::vector<Group> groups;    // [num KV groups]
  std::vector<PrefixGroup> prefix_groups;
  std::vector<SampleRow> samples;
};

}  // namespace octavo
