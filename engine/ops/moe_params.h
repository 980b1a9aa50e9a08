#pragma once
#include <cstdint>

namespace octavo {

// Mixture of experts. A token's experts stand in ascending order, so that their outputs are added in an order that
// depends on the token alone. A shared expert, which every token has, comes after them.

// Chooses the experts with the largest logits (of equals the first) and weighs them by a softmax.
struct RouteExpertsParams {
  const float* logits = nullptr;  // [num_tokens, experts]
  int num_tokens = 0;
  int experts = 0;
  int chosen = 0;
  bool normalized = false;             // over the chosen experts; else over all of them
  const float* shared_gate = nullptr;  // [num_tokens] the shared expert's weight before its sigmoid; null: 1
  int columns = 0;                     // chosen, or chosen + 1 with a shared expert
  int32_t* ids = nullptr;              // [num_tokens, chosen]
  float* weights = nullptr;            // [num_tokens, columns]
};

// out[t] = sum over columns c, ascending, of weights[t, c] * x[rows[t, c]]
struct CombineExpertsParams {
  const float* x = nullptr;       // [any, dim]
  const int32_t* rows = nullptr;  // [num_tokens, columns]
  const float* weights = nullptr;
  int num_tokens = 0;
  int columns = 0;
  int dim = 0;
  float* out = nullptr;  // [num_tokens, dim]
};

}  // namespace octavo
