#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "model/rope_config.h"
#include "model/tensor_names.h"
#include "ops/kv_group.h"

namespace octavo {

enum class Activation : uint8_t { kSilu, kGeluTanh, kClampedSilu };  // of the gate, which is multiplied by up

// RMSNorm of q and k before the rotation: each head by itself, or all heads of a token together.
enum class QkNorm : uint8_t { kNone, kHead, kTogether };

enum class LayerRope : uint8_t { kNone, kGlobal, kLocal };

struct LayerConfig {
  int window = 0;  // positions that a token sees, its own included; 0: all
  LayerRope rope = LayerRope::kGlobal;
  bool dense = false;  // an MLP where other layers have experts
};

struct MoeConfig {
  int experts = 0;  // 0: every layer has an MLP
  int experts_per_token = 0;
  int intermediate = 0;         // of each
  int shared_intermediate = 0;  // of the expert that every token has besides; 0: none
  bool shared_gate = false;     // the shared expert is weighed by a sigmoid of its own
  bool normalized = true;       // the weights of a token's experts add up to 1
  bool router_bias = false;
  bool bias = false;  // of the experts' projections
};

// A decoder, described by its configuration whichever file it came from.
struct ModelConfig {
  std::string architecture;  // the family's name, for messages
  int num_layers = 0;
  int hidden = 0;
  int intermediate = 0;
  int heads = 0;
  int kv_heads = 0;
  int head_dim = 0;
  int vocab = 0;
  int max_positions = 0;
  std::vector<LayerConfig> layers;  // [num_layers], or empty: all alike, without a window

  float norm_eps = 1e-5f;
  float norm_offset = 0.0f;  // added to the weights of every norm
  bool pre_norm = true;      // of a sublayer's input
  bool post_norm = false;    // of what a sublayer adds to the residual stream
  QkNorm qk_norm = QkNorm::kNone;
  bool attention_bias = false;         // q, k and v
  bool attention_output_bias = false;  // o
  bool attention_sinks = false;        // a learned score per head that takes part in the softmax and has no value
  bool mlp_bias = false;
  Activation activation = Activation::kSilu;
  MoeConfig moe;

  float embedding_scale = 1.0f;
  float residual_scale = 1.0f;     // of what a sublayer adds
  float attention_scale = 0.0f;    // of q k; 0: 1 / sqrt(head_dim)
  float attention_softcap = 0.0f;  // 0: off; else scores become softcap * tanh(score / softcap)
  float logit_scale = 1.0f;
  float logit_softcap = 0.0f;  // 0: off

  RopeConfig rope;        // of the layers with LayerRope::kGlobal
  RopeConfig local_rope;  // of those with kLocal
  // The file pairs dimension 2i of a head with 2i + 1; else i with i + rotary_dim / 2, as the engine does. Rows of q
  // and k are reordered when they are packed.
  bool rope_interleaved = false;

  bool tied_embeddings = false;
  TensorNames names;
  std::string
      part;  // what the tensors of this decoder begin with where the checkpoint holds other models too; or empty
  std::vector<int32_t> eos_token_ids;
  int32_t bos_token_id = -1;

  LayerConfig layer(int index) const { return layers.empty() ? LayerConfig{} : layers[index]; }
  bool has_experts(int index) const { return moe.experts > 0 && !layer(index).dense; }
};

void check_config(const ModelConfig& config);  // Error(kInvalidArgument, field, ...) for what no decoder can have

// Layers that keep positions equally long share a group: first those that keep all, then by window.
std::vector<KvGroup> make_kv_groups(const ModelConfig& config, DType dtype);

}  // namespace octavo
