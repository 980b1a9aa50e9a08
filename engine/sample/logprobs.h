#pragma once
#include <cstdint>
#include <vector>

namespace octavo {

struct TokenLogprob {
  int32_t token = -1;
  float logprob = 0.0f;
  int32_t rank = 0;  // 1: the most likely
};

// Log-probabilities at one position, from the raw logits (before temperature, penalties and masks).
struct PositionLogprobs {
  TokenLogprob chosen;
  std::vector<TokenLogprob> top;  // the k best, best first
};

}  // namespace octavo
