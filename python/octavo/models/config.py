"""From a Hugging Face ``config.json`` to the engine's ``ModelConfig``.

A family is described, not programmed: the decoder reads the same configuration whichever model it came from. A field
that the engine would have to honour and cannot is an error that names it; a field nobody knows is warned about.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from octavo import _engine
from octavo.errors import ModelError
from octavo.models.fields import Fields

# Hugging Face class → the architecture that computes the same.
ARCHITECTURES = {"LlamaForCausalLM": "llama", "MistralForCausalLM": "llama"}

MAX_WIDTH = 1 << 20  # of any layer: far above every model, far below what overflows
MAX_VOCAB = 1 << 24
MAX_LAYERS = 1 << 12

# Fields without a meaning for the forward pass of a trained dense decoder.
_NO_EFFECT = frozenset(
    [
        "_name_or_path",
        "_attn_implementation_autoset",
        "add_cross_attention",
        "architectures",
        "attention_dropout",
        "auto_map",
        "bad_words_ids",
        "begin_suppress_tokens",
        "bos_token_id",
        "chunk_size_feed_forward",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "dtype",
        "early_stopping",
        "eos_token_id",
        "finetuning_task",
        "id2label",
        "initializer_range",
        "is_llama_config",
        "label2id",
        "max_length",
        "min_length",
        "model_type",
        "output_attentions",
        "output_hidden_states",
        "pad_token_id",
        "prefix",
        "problem_type",
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "temperature",
        "tokenizer_class",
        "top_k",
        "top_p",
        "torch_dtype",
        "transformers.js_config",
        "transformers_version",
        "unk_token_id",
        "use_cache",
    ]
)
# Fields that would change the result if they had another value than these.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "quantization_config": (None,),
    "rope_interleaved": (False, None),
    "partial_rotary_factor": (1.0, None),
    "is_encoder_decoder": (False, None),
    "cross_attention_hidden_size": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "attention_multiplier": (None,),
    "logits_scaling": (None,),
    "pretraining_tp": (1, None),
    "num_local_experts": (0, 1, None),
    "layer_types": (None,),
}


def from_hugging_face(
    config: Mapping[str, Any], generation: Mapping[str, Any] | None = None, *, source: str = "config.json"
) -> _engine.ModelConfig:
    """The engine's configuration of a Hugging Face model.

    Args:
        config: the contents of ``config.json``, as transformers 4 or 5 writes it.
        generation: the contents of ``generation_config.json``; its token ids take precedence.
        source: the file, for messages.

    Raises:
        ModelError: a field is missing, malformed or cannot be honoured (named in ``param``).
    """
    fields = Fields(config, source)
    family = _architecture(config, source)
    out = _engine.ModelConfig()
    out.architecture = family
    out.num_layers = fields.integer("num_hidden_layers", high=MAX_LAYERS)
    out.hidden = fields.integer("hidden_size", high=MAX_WIDTH)
    out.intermediate = fields.integer("intermediate_size", high=MAX_WIDTH)
    out.heads = fields.integer("num_attention_heads", high=MAX_WIDTH)
    out.kv_heads = fields.integer("num_key_value_heads", out.heads, high=out.heads)
    if out.heads % out.kv_heads:
        raise fields.corrupt("num_key_value_heads", f"must divide the {out.heads} heads, got {out.kv_heads}")
    out.head_dim = fields.integer("head_dim", 0, high=MAX_WIDTH) or out.hidden // out.heads
    out.vocab = fields.integer("vocab_size", high=MAX_VOCAB)
    out.max_positions = fields.integer("max_position_embeddings", 2048)
    out.norm_eps = fields.number("rms_norm_eps", 1e-6)
    fields.only("hidden_act", ("silu", "swish"), "silu")
    out.tied_embeddings = fields.boolean("tie_word_embeddings", False)
    out.attention_bias = out.attention_output_bias = fields.boolean("attention_bias", False)
    out.mlp_bias = fields.boolean("mlp_bias", False)
    # A Mistral configuration that leaves the field out has a window of 4096.
    implied_window = (
        4096 if config.get("model_type") == "mistral" and "sliding_window" not in config else None
    )
    fields.only("sliding_window", (None,), implied_window)
    for name, neutral in _NEUTRAL.items():
        fields.only(name, neutral, None)
    out.rope = _rope(fields, out.head_dim, out.max_positions)
    _token_ids(out, fields, Fields(generation or {}, "generation_config.json"))
    fields.skip(_NO_EFFECT)
    if unknown := fields.unread():
        warnings.warn(f"{source}: fields unknown to octavo are not used: {', '.join(unknown)}", stacklevel=2)
    return out


def _architecture(config: Mapping[str, Any], source: str) -> str:
    names = config.get("architectures")
    if not isinstance(names, list) or len(names) != 1 or names[0] not in ARCHITECTURES:
        shown = names[0] if isinstance(names, list) and len(names) == 1 else names
        raise ModelError(
            f"{source}: architecture {shown} is not supported; supported: "
            f"{', '.join(ARCHITECTURES)} (Mistral's without a sliding window)",
            code="unsupported",
            param="architectures",
        )
    return ARCHITECTURES[names[0]]


def _rope(fields: Fields, head_dim: int, max_positions: int) -> _engine.RopeConfig:
    """transformers 5 writes ``rope_parameters``; older ones ``rope_theta`` and ``rope_scaling``."""
    rope = _engine.RopeConfig()
    rope.rotary_dim = head_dim
    theta = fields.number("rope_theta", 10000.0)
    older = fields.mapping("rope_scaling")
    newer = fields.mapping("rope_parameters")
    name = "rope_parameters" if newer else "rope_scaling"
    scaling = Fields(newer or older, f"{fields.source}: {name}")
    rope.theta = scaling.number("rope_theta", theta)
    scaling.only("partial_rotary_factor", (1.0,), 1.0)
    kind = scaling.only("type", ("default", "linear", "llama3"), "default")
    kind = scaling.only("rope_type", ("default", "linear", "llama3"), kind)
    if kind == "linear":
        rope.scaling = _engine.RopeConfig.Scaling.LINEAR
        rope.factor = scaling.number("factor")
    elif kind == "llama3":
        rope.scaling = _engine.RopeConfig.Scaling.LLAMA3
        rope.factor = scaling.number("factor")
        rope.low_freq_factor = scaling.number("low_freq_factor")
        rope.high_freq_factor = scaling.number("high_freq_factor")
        rope.original_max_positions = scaling.integer("original_max_position_embeddings", max_positions)
        if rope.high_freq_factor <= rope.low_freq_factor:
            limit = rope.low_freq_factor
            raise scaling.corrupt(
                "high_freq_factor", f"must exceed low_freq_factor ({limit}), got {rope.high_freq_factor}"
            )
    else:
        scaling.skip(["original_max_position_embeddings"])
        scaling.only("factor", (1.0,), 1.0)
    if unknown := scaling.unread():
        raise scaling.unsupported(
            unknown[0], f"is {scaling.values[unknown[0]]!r}, a field rope type {kind} does not have"
        )
    return rope


def _token_ids(out: _engine.ModelConfig, fields: Fields, generation: Fields) -> None:
    out.eos_token_ids = generation.token_ids("eos_token_id") or fields.token_ids("eos_token_id")
    bos = generation.token_ids("bos_token_id") or fields.token_ids("bos_token_id")
    out.bos_token_id = bos[0] if bos else -1
