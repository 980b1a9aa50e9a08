#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace octavo {

struct LinearWeights {
  std::unique_ptr<PackedWeight> weight;
  std::vector<float> bias;  // [weight->n()] or empty

  const float* bias_data() const { return bias.empty() ? nullptr : bias.data(); }
};

struct ExpertWeights {
  LinearWeights gate_up;  // rows: gate, up
  LinearWeights down;
};

struct MoeWeights {
  LinearWeights router;                // [experts, hidden]
  std::vector<ExpertWeights> experts;  // empty: the layer has an MLP
  ExpertWeights shared;                // of every token, or nothing
  LinearWeights shared_gate;           // [1, hidden], or nothing
};

struct LayerWeights {
  // A vector that the architecture has not is empty.
  std::vector<float> attention_norm;  // [hidden]
  LinearWeights qkv;                  // rows: q heads, k heads, v heads
  std::vector<float> q_norm;          // [head_dim], or [heads, head_dim] where heads are normalized together
  std::vector<float> k_norm;          // likewise
  std::vector<float> sinks;           // [heads]
  LinearWeights out;
  std::vector<float> attention_post_norm;  // [hidden]
  std::vector<float> mlp_norm;             // [hidden]
  LinearWeights gate_up;                   // rows: gate, up
  LinearWeights down;
  MoeWeights moe;                    // instead of gate_up and down
  std::vector<float> mlp_post_norm;  // [hidden]
};

// Where a tensor of the checkpoint went: rows [first_row, first_row + rows) of a packed matrix, or a vector.
struct WeightPlace {
  const PackedWeight* matrix = nullptr;
  int first_row = 0;
  int rows = 0;
  const float* vector = nullptr;  // [rows]
};

// Everything a decoder reads, packed for the backend. Norms and biases are f32 vectors.
struct DecoderWeights {
  std::unique_ptr<PackedWeight> embedding;  // [vocab, hidden]
  std::unique_ptr<PackedWeight> head;       // [vocab, hidden]; null: tied to the embedding
  std::vector<float> final_norm;            // [hidden]
  std::vector<LayerWeights> layers;
  std::map<std::string, WeightPlace> places;  // by Hugging Face's name
  size_t bytes = 0;

  const WeightPlace& find(const std::string& name) const;  // Error(kNotFound, name, ...)
  const PackedWeight& head_matrix() const { return head ? *head : *embedding; }
};

// Packs the checkpoint's tensors one after the other, giving each one's pages back to the system. A tensor that is
// missing, of another shape or not used by this architecture is an Error that names it.
DecoderWeights load_decoder_weights(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue);

}  // namespace octavo
