#pragma once
#include <vector>

#include "model/config.h"
#include "model/decoder_weights.h"
#include "ops/backend.h"
#include "tensor/buffer.h"

namespace octavo {

// The mixture of experts in place of an MLP. Tokens are grouped by expert, so that each expert's weights are read once
// per step; what a token gets depends on its own row alone. Owns the activations of one step.
class MoeBlock {
 public:
  MoeBlock(const ModelConfig& config, Backend& backend, int max_tokens);

  // x, out: [num_tokens, hidden]
  void forward(Queue& queue, const MoeWeights& weights, const float* x, int num_tokens, float* out);

 private:
  void group_by_expert(int num_tokens);
  void run_expert(Queue& queue, const ExpertWeights& expert, const float* x, int num_tokens, float* out);

  const MoeConfig moe_;
  const int hidden_;
  const Prologue gate_;
  Backend& backend_;
  int columns_;                   // experts of a token, the shared one included
  std::vector<int32_t> ids_;      // [tokens, experts_per_token]
  std::vector<int32_t> offsets_;  // [experts + 1] into tokens_
  std::vector<int32_t> tokens_;   // by expert, then by token
  std::vector<int32_t> rows_;     // [tokens, columns] into outputs_
  Buffer logits_;                 // [tokens, experts]
  Buffer shared_gate_;            // [tokens]
  Buffer weights_;                // [tokens, columns]
  Buffer gathered_;               // [tokens, hidden]
  Buffer gate_up_;                // [tokens, 2 * the widest expert's intermediate]
  Buffer outputs_;                // [tokens * columns, hidden]
};

Prologue gated(Activation activation);  // activation(gate) * up, as linear() reads it

}  // namespace octavo
