#pragma once
#include <string>

namespace octavo {

// What a checkpoint calls the tensors of a decoder, without ".weight" and ".bias"; a layer's stand after
// "<layers><index>.". Every name must be there even where a family has no such tensor.
struct TensorNames {
  std::string embedding = "model.embed_tokens";
  std::string final_norm = "model.norm";
  std::string head = "lm_head";
  std::string layers = "model.layers.";

  std::string attention_norm = "input_layernorm";
  std::string q = "self_attn.q_proj";
  std::string k = "self_attn.k_proj";
  std::string v = "self_attn.v_proj";
  std::string qkv = "self_attn.qkv_proj";  // in one: rows q, k, v
  std::string q_norm = "self_attn.q_norm";
  std::string k_norm = "self_attn.k_norm";
  std::string sinks = "self_attn.sinks";
  std::string out = "self_attn.o_proj";
  std::string attention_post_norm = "post_self_attn_layernorm";

  std::string mlp_norm = "post_attention_layernorm";
  std::string gate = "mlp.gate_proj";
  std::string up = "mlp.up_proj";
  std::string gate_up = "mlp.gate_up_proj";  // in one: rows gate, up
  std::string down = "mlp.down_proj";

  std::string router = "mlp.gate";
  // One expert is "<experts><index>.<expert_gate>"; all stacked in one tensor, [experts, rows, columns], they are
  // "<experts><expert_gate>".
  std::string experts = "mlp.experts.";
  std::string expert_gate = "gate_proj";
  std::string expert_up = "up_proj";
  std::string expert_down = "down_proj";
  std::string expert_gate_up = "gate_up_proj";  // of all experts, as fused_experts.h describes it
  std::string shared_expert_gate = "mlp.shared_expert.gate_proj";
  std::string shared_expert_up = "mlp.shared_expert.up_proj";
  std::string shared_expert_down = "mlp.shared_expert.down_proj";
  std::string shared_gate = "mlp.shared_expert_gate";

  std::string mlp_post_norm = "post_mlp_layernorm";
};

}  // namespace octavo
