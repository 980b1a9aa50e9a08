#pragma once
#include <vector>

#include "sample/logprobs.h"
#include "sample/scratch.h"

namespace octavo {

enum class SampleStatus : uint8_t {
  kOk,
  kNonFinite,  // NaN or +inf among the logits, or nothing but -inf: the request fails
  kAllMasked,  // its own masks leave no token: the request fails
  kGrammar,    // its grammar cannot go on: the request fails
};

// Log-probabilities are finite, since JSON has no infinity: below this there is only this.
inline constexpr float kMinLogprob = -9999.0f;

// Log-softmax of a row of raw logits [vocab], reduced in a fixed order. Ranks count strictly greater logits, so equal
// ones share a rank; the best are ordered by logit, then by lower id.

// Log-probability and rank of `token`, and the `top` best.
SampleStatus score_token(const float* logits, int vocab, int32_t token, int top, SampleScratch& scratch,
                         PositionLogprobs& out);

// The `count` best: what a beam search goes on with.
SampleStatus best_tokens(const float* logits, int vocab, int count, SampleScratch& scratch,
                         std::vector<TokenLogprob>& out);

}  // namespace octavo
