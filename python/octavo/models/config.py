"""From a Hugging Face ``config.json`` to the engine's ``ModelConfig``.

A family is described, not programmed: the decoder reads the same configuration whichever model it came from. A field
that the engine would have to honour and cannot is an error that names it; a field nobody knows is warned about.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from typing import Any

from octavo import _engine
from octavo.models import families
from octavo.models.fields import Fields
from octavo.models.rope import set_rope

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
        "cache_implementation",
        "chunk_size_feed_forward",
        "decoder_start_token_id",
        "diversity_penalty",
        "do_sample",
        "embd_pdrop",
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
        "quantization_config",  # of the files: see octavo.models.quantization
        "resid_pdrop",
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
    "rope_interleaved": (False, None),
    "sliding_window": (None,),
    "is_encoder_decoder": (False, None),
    "cross_attention_hidden_size": (None,),
    "attn_logit_softcapping": (None,),
    "final_logit_softcapping": (None,),
    "attention_multiplier": (None,),
    "logits_scaling": (None,),
    "residual_multiplier": (1.0, None),
    "embedding_multiplier": (1.0, None),
    "pretraining_tp": (1, None),
    "clip_qkv": (None,),
    "num_experts": (0, None),
    "num_local_experts": (0, 1, None),
    "layer_types": (None,),
}


_ACTIVATIONS = {
    "silu": _engine.Activation.SILU,
    "swish": _engine.Activation.SILU,
    "gelu_pytorch_tanh": _engine.Activation.GELU_TANH,
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
    family = families.of_class(config.get("architectures"), source)
    out = family.new_config()
    described: Mapping[str, Any] = config
    if prefix := family.parts_of.get(config["architectures"][0]):
        family.become_part(out, prefix)
        own = ("bos_token_id", "eos_token_id", "tie_word_embeddings")
        described = {
            **Fields(config, source).mapping("text_config"),
            **{name: config[name] for name in own if config.get(name) is not None},
        }
    fields = Fields({**family.defaults, **described}, source)
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
    name = "hidden_activation" if "hidden_activation" in fields.values else "hidden_act"
    out.activation = _ACTIVATIONS[fields.only(name, tuple(_ACTIVATIONS), "silu")]
    fields.skip(["hidden_act"])  # Gemma's is another word for the same
    out.tied_embeddings = fields.boolean("tie_word_embeddings", False)
    out.attention_bias = out.attention_output_bias = fields.boolean("attention_bias", False)
    out.mlp_bias = fields.boolean("mlp_bias", False)
    set_rope(fields, out)
    family.set_traits(out, gguf=False)
    family.read(fields, out)
    drop_wide_windows(out)
    for name in set(_NEUTRAL).intersection(fields.unread()):
        fields.only(name, _NEUTRAL[name], None)
    _token_ids(out, fields, Fields(generation or {}, "generation_config.json"))
    fields.skip(_NO_EFFECT)
    if unknown := fields.unread():
        warnings.warn(f"{source}: fields unknown to octavo are not used: {', '.join(unknown)}", stacklevel=2)
    return out


def drop_wide_windows(config: _engine.ModelConfig) -> None:
    """A window that no text outgrows is none."""
    layers = config.layers
    for layer in layers:
        if layer.window >= config.max_positions:
            layer.window = 0
    config.layers = layers


def _token_ids(out: _engine.ModelConfig, fields: Fields, generation: Fields) -> None:
    out.eos_token_ids = generation.token_ids("eos_token_id") or fields.token_ids("eos_token_id")
    bos = generation.token_ids("bos_token_id") or fields.token_ids("bos_token_id")
    out.bos_token_id = bos[0] if bos else -1
