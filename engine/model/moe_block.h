#pragma once
#include <memory>

#include "model/config.h"
#include "model/decoder_weights.h"
#include "ops/backend.h"

namespace octavo {

// The mixture of experts in place of an MLP. Tokens are grouped by expert, so that each expert's weights are read once
// per step; what a token gets depends on its own row alone. Owns the activations of one step.
class MoeBlock {
 public:
  MoeBlock(const ModelConfig& config, Backend& backend, int max_tokens);

  // x, out: [num_tokens, hidden]
  void forward(Queue& queue, const MoeWeights& weights, const float* x, int num_tokens, float* out);

 private:
  void run_shared(Queue& queue, const ExpertWeights& expert, const float* x, int num_tokens, float* out);

  const MoeConfig moe_;
  const int hidden_;
  const Prologue gate_;
  Backend& backend_;
  int columns_;                                // experts of a token, the shared one included
  std::unique_ptr<DeviceMemory> ids_;          // [tokens, experts_per_token]
  std::unique_ptr<DeviceMemory> offsets_;      // [experts + 1] into tokens_
  std::unique_ptr<DeviceMemory> tokens_;       // by expert, then by token
  std::unique_ptr<DeviceMemory> rows_;         // [tokens, columns] into outputs_
  std::unique_ptr<DeviceMemory> logits_;       // [tokens, experts]
  std::unique_ptr<DeviceMemory> shared_gate_;  // [tokens]
  std::unique_ptr<DeviceMemory> weights_;      // [tokens, columns]
  std::unique_ptr<DeviceMemory> gathered_;     // [tokens, hidden], null where the backend gathers while it reads
  std::unique_ptr<DeviceMemory> gate_up_;      // [tokens or choices, 2 * the widest expert's intermediate]
  std::unique_ptr<DeviceMemory> outputs_;      // [tokens * columns, hidden]
};

Prologue gated(Activation activation);  // activation(gate) * up, as linear() reads it

}  // namespace octavo
