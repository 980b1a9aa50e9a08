// The description of a decoder, as Python fills it in.
#include "model/config.h"

#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "bind.h"

namespace octavo {

namespace {

void bind_rope(nb::module_& m) {
  nb::class_<RopeConfig> rope(m, "RopeConfig",
                              "Rotary position embedding: base, width and how frequencies are scaled.");
  nb::enum_<RopeConfig::Scaling>(rope, "Scaling")
      .value("NONE", RopeConfig::Scaling::kNone)
      .value("LINEAR", RopeConfig::Scaling::kLinear)
      .value("LLAMA3", RopeConfig::Scaling::kLlama3)
      .value("DYNAMIC", RopeConfig::Scaling::kDynamic)
      .value("YARN", RopeConfig::Scaling::kYarn)
      .value("LONGROPE", RopeConfig::Scaling::kLongRope);
  rope.def(nb::init<>())
      .def_rw("theta", &RopeConfig::theta)
      .def_rw("rotary_dim", &RopeConfig::rotary_dim)
      .def_rw("scaling", &RopeConfig::scaling)
      .def_rw("factor", &RopeConfig::factor)
      .def_rw("low_freq_factor", &RopeConfig::low_freq_factor)
      .def_rw("high_freq_factor", &RopeConfig::high_freq_factor)
      .def_rw("original_max_positions", &RopeConfig::original_max_positions)
      .def_rw("beta_fast", &RopeConfig::beta_fast)
      .def_rw("beta_slow", &RopeConfig::beta_slow)
      .def_rw("truncate", &RopeConfig::truncate)
      .def_rw("attention_factor", &RopeConfig::attention_factor)
      .def_rw("freq_factors", &RopeConfig::freq_factors)
      .def_rw("long_factors", &RopeConfig::long_factors);
}

void bind_layer(nb::module_& m) {
  nb::enum_<LayerRope>(m, "LayerRope", "Which rotary positions a layer has.")
      .value("NONE", LayerRope::kNone)
      .value("GLOBAL", LayerRope::kGlobal)
      .value("LOCAL", LayerRope::kLocal);
  nb::class_<LayerConfig>(m, "LayerConfig", "What one layer has of its own.")
      .def(nb::init<>())
      .def_rw("window", &LayerConfig::window)
      .def_rw("rope", &LayerConfig::rope)
      .def_rw("dense", &LayerConfig::dense);
  nb::class_<MoeConfig>(m, "MoeConfig", "The experts of the layers that have them.")
      .def(nb::init<>())
      .def_rw("experts", &MoeConfig::experts)
      .def_rw("experts_per_token", &MoeConfig::experts_per_token)
      .def_rw("intermediate", &MoeConfig::intermediate)
      .def_rw("shared_intermediate", &MoeConfig::shared_intermediate)
      .def_rw("shared_gate", &MoeConfig::shared_gate)
      .def_rw("normalized", &MoeConfig::normalized)
      .def_rw("router_bias", &MoeConfig::router_bias)
      .def_rw("bias", &MoeConfig::bias);
}

}  // namespace

void bind_config(nb::module_& m) {
  bind_rope(m);
  bind_layer(m);
  nb::enum_<Activation>(m, "Activation", "Of the gate of an MLP.")
      .value("SILU", Activation::kSilu)
      .value("GELU_TANH", Activation::kGeluTanh)
      .value("CLAMPED_SILU", Activation::kClampedSilu);
  nb::enum_<QkNorm>(m, "QkNorm", "RMSNorm of queries and keys.")
      .value("NONE", QkNorm::kNone)
      .value("HEAD", QkNorm::kHead)
      .value("TOGETHER", QkNorm::kTogether);
  nb::class_<TensorNames>(m, "TensorNames", "What a checkpoint calls the tensors of a decoder.")
      .def(nb::init<>())
      .def_rw("embedding", &TensorNames::embedding)
      .def_rw("final_norm", &TensorNames::final_norm)
      .def_rw("head", &TensorNames::head)
      .def_rw("layers", &TensorNames::layers)
      .def_rw("attention_norm", &TensorNames::attention_norm)
      .def_rw("q", &TensorNames::q)
      .def_rw("k", &TensorNames::k)
      .def_rw("v", &TensorNames::v)
      .def_rw("qkv", &TensorNames::qkv)
      .def_rw("q_norm", &TensorNames::q_norm)
      .def_rw("k_norm", &TensorNames::k_norm)
      .def_rw("sinks", &TensorNames::sinks)
      .def_rw("out", &TensorNames::out)
      .def_rw("attention_post_norm", &TensorNames::attention_post_norm)
      .def_rw("mlp_norm", &TensorNames::mlp_norm)
      .def_rw("gate", &TensorNames::gate)
      .def_rw("up", &TensorNames::up)
      .def_rw("gate_up", &TensorNames::gate_up)
      .def_rw("down", &TensorNames::down)
      .def_rw("router", &TensorNames::router)
      .def_rw("experts", &TensorNames::experts)
      .def_rw("expert_gate", &TensorNames::expert_gate)
      .def_rw("expert_up", &TensorNames::expert_up)
      .def_rw("expert_gate_up", &TensorNames::expert_gate_up)
      .def_rw("expert_down", &TensorNames::expert_down)
      .def_rw("shared_expert_gate", &TensorNames::shared_expert_gate)
      .def_rw("shared_expert_up", &TensorNames::shared_expert_up)
      .def_rw("shared_expert_down", &TensorNames::shared_expert_down)
      .def_rw("shared_gate", &TensorNames::shared_gate)
      .def_rw("mlp_post_norm", &TensorNames::mlp_post_norm);
  nb::class_<ModelConfig>(m, "ModelConfig", "A decoder, described by its configuration whichever file it came from.")
      .def(nb::init<>())
      .def_rw("architecture", &ModelConfig::architecture)
      .def_rw("num_layers", &ModelConfig::num_layers)
      .def_rw("hidden", &ModelConfig::hidden)
      .def_rw("intermediate", &ModelConfig::intermediate)
      .def_rw("heads", &ModelConfig::heads)
      .def_rw("kv_heads", &ModelConfig::kv_heads)
      .def_rw("head_dim", &ModelConfig::head_dim)
      .def_rw("vocab", &ModelConfig::vocab)
      .def_rw("max_positions", &ModelConfig::max_positions)
      .def_rw("layers", &ModelConfig::layers)
      .def_rw("norm_eps", &ModelConfig::norm_eps)
      .def_rw("norm_offset", &ModelConfig::norm_offset)
      .def_rw("pre_norm", &ModelConfig::pre_norm)
      .def_rw("post_norm", &ModelConfig::post_norm)
      .def_rw("qk_norm", &ModelConfig::qk_norm)
      .def_rw("attention_bias", &ModelConfig::attention_bias)
      .def_rw("attention_output_bias", &ModelConfig::attention_output_bias)
      .def_rw("attention_sinks", &ModelConfig::attention_sinks)
      .def_rw("mlp_bias", &ModelConfig::mlp_bias)
      .def_rw("activation", &ModelConfig::activation)
      .def_rw("moe", &ModelConfig::moe)
      .def_rw("embedding_scale", &ModelConfig::embedding_scale)
      .def_rw("residual_scale", &ModelConfig::residual_scale)
      .def_rw("attention_scale", &ModelConfig::attention_scale)
      .def_rw("attention_softcap", &ModelConfig::attention_softcap)
      .def_rw("logit_scale", &ModelConfig::logit_scale)
      .def_rw("logit_softcap", &ModelConfig::logit_softcap)
      .def_rw("rope", &ModelConfig::rope)
      .def_rw("local_rope", &ModelConfig::local_rope)
      .def_rw("rope_interleaved", &ModelConfig::rope_interleaved)
      .def_rw("tied_embeddings", &ModelConfig::tied_embeddings)
      .def_rw("names", &ModelConfig::names)
      .def_rw("part", &ModelConfig::part)
      .def_rw("eos_token_ids", &ModelConfig::eos_token_ids)
      .def_rw("bos_token_id", &ModelConfig::bos_token_id);
}

}  // namespace octavo
