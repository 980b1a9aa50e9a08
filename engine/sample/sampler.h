#pragma once
#include <cstdint>
#include <vector>

#include "sample/params.h"
#include "sample/sampler_state.h"
#include "sample/score.h"
#include "sample/scratch.h"

namespace octavo {

// One token to draw. It depends on these values alone: not on the batch, the thread or what was drawn before.
struct SampleInput {
  const float* logits = nullptr;  // [vocab], raw
  int vocab = 0;
  const SamplingParams* params = nullptr;  // as check_params accepts them
  const SamplerState* state = nullptr;
  const uint32_t* mask = nullptr;  // [(vocab + 31) / 32] from a Constraint, or null
  uint32_t choice = 0;             // which of the request's n sequences
  int32_t position = 0;            // absolute position of the token to be drawn
};

struct SampleResult {
  int32_t token = -1;  // -1 unless the status is kOk
  SampleStatus status = SampleStatus::kOk;
};

// Greedy where nothing else can come out: temperature below 1e-5, top_p 0 or top_k 1.
bool is_greedy(const SamplingParams& params);

// The stages, in this order: logit_bias, repetition, frequency and presence penalties, bad_words, allowed_token_ids,
// min_tokens, constraint mask, temperature, top_k, top_p, min_p, draw. Greedy takes the largest logit after the masks,
// the lowest id among equals. Else, with the tokens ordered by logit, then by lower id:
//   top_k keeps the first k; top_p the shortest prefix of what is left that holds that share of its probability; min_p
//   those at least min_p times as likely as the first. A probability counts in steps of 2^-30 of the first's: sums are
//   exact in any order, and what is 2^31 times less likely is never drawn. The draw inverts the cumulative distribution
//   over ids in ascending order, in integers, with Philox(seed; position, choice).
SampleResult sample(const SampleInput& in, SampleScratch& scratch);

struct TokenWeight {
  int32_t token = -1;
  uint32_t weight = 0;  // 2^30 for the most likely
};

// What sample() draws from: every token with a weight, by ascending id. Greedy: the one token.
SampleStatus distribution(const SampleInput& in, SampleScratch& scratch, std::vector<TokenWeight>& out);

}  // namespace octavo
