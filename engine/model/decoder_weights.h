#pragma once
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "model/config.h"
#include "model/device_vector.h"
#include "model/weights.h"
#include "ops/backend.h"

namespace octavo {

struct LinearWeights {
  std::unique_ptr<PackedWeight> weight;
  DeviceVector bias;  // [weight->n()] or empty

  const float* bias_data() const { return bias.data(); }
};

struct ExpertWeights {
  LinearWeights gate_up;  // rows: gate, up
  LinearWeights down;
};

struct MoeWeights {
  LinearWeights router;                // [experts, hidden]
  std::vector<ExpertWeights> experts;  // empty: the layer has an MLP
  std::unique_ptr<ExpertTable> table;  // of experts
  ExpertWeights shared;                // of every token, or nothing
  LinearWeights shared_gate;           // [1, hidden], or nothing
};

struct LayerWeights {
  // A vector that the architecture has not is empty.
  DeviceVector attention_norm;  // [hidden]
  LinearWeights qkv;            // rows: q heads, k heads, v heads
  DeviceVector q_norm;          // [head_dim], or [heads, head_dim] where heads are normalized together
  DeviceVector k_norm;          // likewise
  DeviceVector sinks;           // [heads]
  LinearWeights out;
  DeviceVector attention_post_norm;  // [hidden]
  DeviceVector mlp_norm;             // [hidden]
  LinearWeights gate_up;             // rows: gate, up
  LinearWeights down;
  MoeWeights moe;              // instead of gate_up and down
  DeviceVector mlp_post_norm;  // [hidden]
};

// Where a tensor of the checkpoint went: rows [first_row, first_row + rows) of a packed matrix, or a vector.
struct WeightPlace {
  const PackedWeight* matrix = nullptr;
  int first_row = 0;
  int rows = 0;
  const float* vector = nullptr;  // [rows], on the device
};

// Everything a decoder reads, packed for the backend and on its device. Norms and biases are f32 vectors.
struct DecoderWeights {
  std::unique_ptr<PackedWeight> embedding;  // [vocab, hidden]
  std::unique_ptr<PackedWeight> head;       // [vocab, hidden]; null: tied to the embedding
  std::unique_ptr<OutputScreen> screen;     // of the head; null: it would not help
  DeviceVector final_norm;                  // [hidden]
  std::vector<LayerWeights> layers;
  std::map<std::string, WeightPlace> places;  // by Hugging Face's name
  size_t bytes = 0;

  const WeightPlace& find(const std::string& name) const;  // Error(kNotFound, name, ...)
  const PackedWeight& head_matrix() const { return head ? *head : *embedding; }
};

// Packs the checkpoint's tensors one after the other, giving each one's pages back to the system. A tensor that is
// missing, of another shape or not used by this architecture is an Error that names it.
// screen_head: with a screen of the head, where that helps.
DecoderWeights load_decoder_weights(const ModelConfig& config, WeightFiles& files, Backend& backend, Queue& queue,
                                    bool screen_head);

}  // namespace octavo
