"""A tiny random model of each family, made by transformers' own classes, as a folder and as a GGUF."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import torch
import transformers
from tiny_models import LLAMA3_ROPE, interleave

VOCAB = 300
BASE: dict[str, Any] = {
    "vocab_size": VOCAB,
    "hidden_size": 64,
    "intermediate_size": 96,
    "num_hidden_layers": 4,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 512,
    "initializer_range": 0.15,
    "pad_token_id": None,
    "bos_token_id": 1,
    "eos_token_id": 2,
}


@dataclass(frozen=True)
class Case:
    """A model: transformers' class, fields of its configuration, and how llama.cpp's converter writes it.

    Attributes:
        kind: ``<kind>Config`` and ``<kind>ForCausalLM``.
        fields: of the configuration.
        config_kind: where the configuration's class has another name.
        arch: GGUF's architecture; None: no GGUF is made.
        keys: GGUF metadata below the architecture's prefix.
        permuted: the converter interleaves the halves of q and k.
        norms_hold_one: the converter adds 1 to every norm.
        max_len: of the runner and of the reference's prompt.
    """

    kind: str
    fields: dict[str, Any] = field(default_factory=dict)
    config_kind: str = ""
    arch: gguf.MODEL_ARCH | None = None
    keys: dict[str, Any] = field(default_factory=dict)
    permuted: bool = False
    norms_hold_one: bool = False
    max_len: int = 200


A = gguf.MODEL_ARCH
_HEAD_32 = {"attention.key_length": 32, "attention.value_length": 32}
_GEMMA = {"head_dim": 32, "query_pre_attn_scalar": 24, "sliding_window": 24}
_LONG = {"short_factor": [1.0 + 0.1 * i for i in range(6)], "long_factor": [1.5 + 0.4 * i for i in range(6)]}
_PHI = {
    "partial_rotary_factor": 0.75,
    "original_max_position_embeddings": 128,
    "rope_scaling": {"type": "longrope", **_LONG},
}
_YARN = {
    "rope_type": "yarn",
    "rope_theta": 10000.0,
    "factor": 4.0,
    "original_max_position_embeddings": 64,
}

_EXPERTS = {"expert_count": 5, "expert_used_count": 2}
_QWEN_EXPERTS = {"num_experts": 5, "num_experts_per_tok": 2, "moe_intermediate_size": 32}

CASES: dict[str, Case] = {
    "llama 3": Case("Llama", {"rope_parameters": LLAMA3_ROPE}),
    "llama": Case("Llama", {"tie_word_embeddings": True}, arch=A.LLAMA, permuted=True),
    "llama yarn": Case("Llama", {"rope_parameters": _YARN, "max_position_embeddings": 256}),
    "llama yarn gguf": Case(
        "Llama", {"rope_parameters": _YARN, "max_position_embeddings": 256}, arch=A.LLAMA, permuted=True,
        keys={"rope.scaling.type": "yarn", "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64},
    ),
    "llama yarn mscale": Case(
        "Llama", {"rope_parameters": _YARN | {"mscale": 0.7, "mscale_all_dim": 1.3, "truncate": False}}
    ),
    "llama dynamic, within": Case("Llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}}),
    "llama dynamic, beyond": Case(
        "Llama", {"rope_parameters": {"rope_type": "dynamic", "factor": 4.0}, "max_position_embeddings": 64}
    ),
    "mistral": Case(
        "Mistral", {"sliding_window": 40}, arch=A.LLAMA, permuted=True, keys={"attention.sliding_window": 40}
    ),
    "qwen 2": Case("Qwen2", arch=A.QWEN2),
    "qwen 2 windows": Case("Qwen2", {"use_sliding_window": True, "sliding_window": 33, "max_window_layers": 2}),
    "qwen 3": Case("Qwen3", {"head_dim": 32}, arch=A.QWEN3, keys=_HEAD_32),
    "gemma 2": Case(
        "Gemma2", _GEMMA | {"final_logit_softcapping": 4.0, "attn_logit_softcapping": 3.0,
                            "query_pre_attn_scalar": 32},
        arch=A.GEMMA2, norms_hold_one=True,
        keys=_HEAD_32 | {"attention.sliding_window": 24, "attn_logit_softcapping": 3.0,
                         "final_logit_softcapping": 4.0},
    ),
    "gemma 2, wide heads": Case("Gemma2", {"head_dim": 256, "sliding_window": 24}),
    "gemma 3": Case(
        "Gemma3", _GEMMA | {"num_hidden_layers": 7, "query_pre_attn_scalar": 32}, "Gemma3Text",
        arch=A.GEMMA3, norms_hold_one=True, keys=_HEAD_32 | {"attention.sliding_window": 24, "rope.freq_base": 1e6},
    ),
    "gemma 3, scaled": Case(
        "Gemma3",
        _GEMMA | {"layer_types": ["sliding_attention", "full_attention"] * 2, "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 1e6},
            "sliding_attention": {"rope_type": "default", "rope_theta": 1e4}}},
        "Gemma3Text",
    ),
    "phi 3": Case("Phi3", {"tie_word_embeddings": False}, arch=A.PHI3),
    "phi 3 windows": Case("Phi3", {"sliding_window": 50}, arch=A.PHI3, keys={"attention.sliding_window": 50}),
    "phi 4 mini, long": Case(
        "Phi3", _PHI, arch=A.PHI3,
        keys={"rope.dimension_count": 12, "rope.scaling.original_context_length": 128,
              "rope.scaling.attn_factor": math.sqrt(1 + math.log(4) / math.log(128))},
    ),
    "phi 4 mini, short": Case("Phi3", _PHI, max_len=120),
    "smollm 3": Case("SmolLM3", {"tie_word_embeddings": False}, arch=A.SMOLLM3, permuted=True),
    "smollm 3 windows": Case(
        "SmolLM3", {"no_rope_layers": [1, 0, 0, 1], "use_sliding_window": True, "sliding_window": 20}
    ),
    "granite": Case(
        "Granite",
        {"embedding_multiplier": 6.0, "residual_multiplier": 0.3, "attention_multiplier": 0.2, "logits_scaling": 4.0},
        arch=A.GRANITE, permuted=True,
        keys={"embedding_scale": 6.0, "residual_scale": 0.3, "attention.scale": 0.2, "logit_scale": 4.0},
    ),
    "olmo 2": Case("Olmo2", arch=A.OLMO2),
    "mixtral": Case(
        "Mixtral", {"num_local_experts": 5}, arch=A.LLAMA, permuted=True, keys=_EXPERTS,
    ),
    "mixtral windows": Case("Mixtral", {"num_local_experts": 4, "sliding_window": 30}),
    "qwen 2 moe": Case("Qwen2Moe", _QWEN_EXPERTS | {"shared_expert_intermediate_size": 48}, arch=A.QWEN2MOE,
                       keys=_EXPERTS | {"expert_feed_forward_length": 32, "expert_shared_feed_forward_length": 48}),
    "qwen 3 moe": Case("Qwen3Moe", _QWEN_EXPERTS | {"head_dim": 32, "norm_topk_prob": True}, arch=A.QWEN3MOE,
                       keys=_HEAD_32 | _EXPERTS | {"expert_feed_forward_length": 32}),
    "qwen 3 moe, some dense": Case("Qwen3Moe", _QWEN_EXPERTS | {"mlp_only_layers": [0], "decoder_sparse_step": 2}),
    "olmoe": Case("Olmoe", {"num_experts": 5, "num_experts_per_tok": 2}, arch=A.OLMOE, keys=_EXPERTS),
    "gpt-oss": Case(
        "GptOss",
        {"head_dim": 32, "num_local_experts": 5, "num_experts_per_tok": 2, "sliding_window": 24,
         "max_position_embeddings": 256,
         "rope_parameters": _YARN | {"rope_theta": 150000.0, "truncate": False, "beta_fast": 32.0, "beta_slow": 1.0}},
        arch=A.GPT_OSS,
        keys=_HEAD_32 | _EXPERTS | {
            "expert_feed_forward_length": 96, "attention.sliding_window": 24, "rope.scaling.type": "yarn",
            "rope.scaling.factor": 4.0, "rope.scaling.original_context_length": 64},
    ),
    "glm": Case("Glm", {"head_dim": 32}),
    "glm 4": Case("Glm4", {"head_dim": 32}, arch=A.GLM4, keys=_HEAD_32 | {"rope.dimension_count": 16}),
}  # fmt: skip


def make(case: Case) -> transformers.PreTrainedModel:
    """The model in float32, with norms, biases and sinks that matter."""
    torch.manual_seed(23)
    config_class = getattr(transformers, f"{case.config_kind or case.kind}Config")
    config = config_class(**(BASE | case.fields))
    config._attn_implementation = "eager"
    model = getattr(transformers, f"{case.kind}ForCausalLM")(config).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith("norm.weight"):
                parameter.add_(torch.empty_like(parameter).uniform_(-0.4, 0.4))
            if name.endswith(("bias", "sinks")):
                parameter.normal_(std=0.3)
    return model


def save_gguf(
    case: Case,
    model: transformers.PreTrainedModel,
    path: Path,
    experts: gguf.GGMLQuantizationType | None = None,
) -> None:
    """Writes the model as llama.cpp's converter does: its names by the gguf package's own table.

    With ``experts`` their matrices are of that type.
    """
    assert case.arch is not None
    c = model.config
    arch = gguf.MODEL_ARCH_NAMES[case.arch]
    names = gguf.get_tensor_name_map(case.arch, c.num_hidden_layers)
    w = gguf.GGUFWriter(path, arch)
    w.add_block_count(c.num_hidden_layers)
    w.add_embedding_length(c.hidden_size)
    w.add_feed_forward_length(c.intermediate_size)
    w.add_head_count(c.num_attention_heads)
    w.add_head_count_kv(c.num_key_value_heads)
    w.add_context_length(c.max_position_embeddings)
    w.add_layer_norm_rms_eps(c.rms_norm_eps)
    w.add_vocab_size(c.vocab_size)
    theta = c.rope_parameters.get("rope_theta")
    if theta is not None and "rope.freq_base" not in case.keys:
        w.add_rope_freq_base(theta)
    for key, value in case.keys.items():
        add = {str: w.add_string, int: w.add_uint32, float: w.add_float32}[type(value)]
        add(f"{arch}.{key}", value)
    for name, tensor in stacked_experts(model.state_dict()).items():
        if name == "lm_head.weight" and c.tie_word_embeddings:
            continue
        values = tensor.numpy()
        module = name.split(".")[-2]
        if case.permuted and module in ("q_proj", "k_proj"):
            values = interleave(
                values, c.num_attention_heads if module == "q_proj" else c.num_key_value_heads
            )
        if case.norms_hold_one and name.endswith("norm.weight"):
            values = values + 1
        mapped = names.get_name(name, try_suffixes=(".weight", ".bias"))
        assert mapped, name
        values = np.ascontiguousarray(values)
        if experts is not None and values.ndim == 3:
            w.add_tensor(mapped, gguf.quants.quantize(values, experts), raw_dtype=experts)
        else:
            w.add_tensor(mapped, values)
    for kind in ("long", "short"):
        if factors := c.rope_parameters.get(f"{kind}_factor"):
            w.add_tensor(f"rope_factors_{kind}.weight", np.asarray(factors, np.float32))
    w.write_header_to_file()
    w.write_kv_data_to_file()
    w.write_tensors_to_file()
    w.close()


def stacked_experts(state: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """transformers holds gate and up of all experts in one parameter, llama.cpp in two tensors."""
    out = {}
    for name, tensor in state.items():
        at, _, kind = name.rpartition(".experts.")
        at += ".experts."
        fused = (
            name.replace("_bias", "") + "_bias" in state
        )  # gpt-oss: gate and up in turn, rows and columns exchanged
        if kind == "gate_up_proj" and fused:
            out[at + "gate_proj.weight"] = tensor[..., ::2].transpose(1, 2)
            out[at + "up_proj.weight"] = tensor[..., 1::2].transpose(1, 2)
        elif kind == "gate_up_proj":
            out[at + "gate_proj.weight"], out[at + "up_proj.weight"] = tensor.chunk(2, dim=1)
        elif kind == "gate_up_proj_bias":
            out[at + "gate_proj.bias"], out[at + "up_proj.bias"] = tensor[:, ::2], tensor[:, 1::2]
        elif kind == "down_proj":
            out[at + "down_proj.weight"] = tensor.transpose(1, 2) if fused else tensor
        elif kind == "down_proj_bias":
            out[at + "down_proj.bias"] = tensor
        else:
            out[name + ".weight" if name.endswith("sinks") else name] = tensor
    return out


@torch.no_grad()
def reference_logits(model: transformers.PreTrainedModel, ids: list[int]) -> np.ndarray:
    return model(torch.tensor([ids]), use_cache=False).logits[0].float().numpy()
