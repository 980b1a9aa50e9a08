#pragma once
#include <cstdint>
#include <utility>
#include <vector>

#include "ops/params.h"

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

// A counting sort of the choices by expert, then by token.
struct GroupExpertsParams {
  const int32_t* ids = nullptr;  // [num_tokens, chosen]
  int num_tokens = 0;
  int experts = 0;
  int chosen = 0;
  int columns = 0;             // chosen, or chosen + 1 with a shared expert
  int32_t* offsets = nullptr;  // [experts + 1]: expert e has places [offsets[e], offsets[e + 1])
  int32_t* tokens = nullptr;   // [num_tokens * chosen] the token of each place
  int32_t* rows = nullptr;  // [num_tokens, columns] the place of each choice; num_tokens * chosen + t: the shared one's
};

// The matrices of one expert.
struct ExpertMatrices {
  const PackedWeight* gate_up = nullptr;  // [2 * width, dim]
  const float* gate_up_bias = nullptr;    // [2 * width] or null
  const PackedWeight* down = nullptr;     // [dim, width]
  const float* down_bias = nullptr;       // [dim] or null
};

// The experts of a layer, made once by Backend::make_expert_table; a backend may add what its launches read.
struct ExpertTable {
  explicit ExpertTable(std::vector<ExpertMatrices> matrices) : experts(std::move(matrices)) {}
  virtual ~ExpertTable() = default;
  std::vector<ExpertMatrices> experts;
};

// out[i] = down(gate(gate_up(x[tokens[i]]))) by the expert that has place i. A row depends on its token alone.
struct RunExpertsParams {
  const ExpertTable* table = nullptr;
  const float* x = nullptr;  // [num_tokens, dim]
  int num_tokens = 0;
  int dim = 0;
  int chosen = 0;
  Prologue gate = Prologue::kSiluMul;
  const int32_t* offsets = nullptr;  // [experts + 1]
  const int32_t* tokens = nullptr;   // [num_tokens * chosen]
  float* gathered = nullptr;         // scratch [num_tokens, dim], null where the backend gathers while it reads
  float* gate_up = nullptr;  // scratch [num_tokens, 2 * width], or for all places where it runs experts together
  float* out = nullptr;      // [num_tokens * chosen, dim]
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
