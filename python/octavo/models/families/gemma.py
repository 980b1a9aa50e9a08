"""Gemma 2 and 3: norms before and after every sublayer, scaled embeddings, GeGLU, alternating windows."""

import math

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.families.layers import Rope, layer, windows_by_type
from octavo.models.fields import Fields

_TRAITS = {"post_norm": True, "norm_offset": 1.0, "activation": _engine.Activation.GELU_TANH}
_GGUF_TRAITS = {"norm_offset": 0.0}  # its norms hold the 1 already
_NAMES = {
    "attention_post_norm": "post_attention_layernorm",
    "mlp_norm": "pre_feedforward_layernorm",
    "mlp_post_norm": "post_feedforward_layernorm",
}
_DEFAULTS = {
    "head_dim": 256,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "tie_word_embeddings": True,
}
_GGUF_27B = {"gemma2": 46, "gemma3": 62}  # layers of the one size whose scores are scaled by its width


def _read_common(fields: Fields, config: _engine.ModelConfig) -> None:
    config.embedding_scale = math.sqrt(config.hidden)
    config.attention_scale = fields.number("query_pre_attn_scalar") ** -0.5
    config.attention_softcap = fields.number("attn_logit_softcapping", None) or 0.0
    config.logit_softcap = fields.number("final_logit_softcapping", None) or 0.0
    fields.only("use_bidirectional_attention", (False, None), None)


def _read_gguf_common(fields: Fields, config: _engine.ModelConfig) -> None:
    config.embedding_scale = math.sqrt(config.hidden)
    if config.num_layers == _GGUF_27B[config.architecture]:
        config.attention_scale = (config.hidden // config.heads) ** -0.5
    config.attention_softcap = fields.number("attn_logit_softcapping", None) or 0.0
    config.logit_softcap = fields.number("final_logit_softcapping", None) or 0.0


def _read_gemma2(fields: Fields, config: _engine.ModelConfig) -> None:
    _read_common(fields, config)
    windows_by_type(fields, config, lambda i: i % 2 == 0, fields.integer("sliding_window"))


def _read_gemma2_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    _read_gguf_common(fields, config)
    window = fields.integer("attention.sliding_window", 4096)
    config.layers = [layer(window if i % 2 == 0 else 0) for i in range(config.num_layers)]


def _local_rope(config: _engine.ModelConfig, sliding: list[bool], window: int) -> None:
    config.layers = [layer(window, Rope.LOCAL) if slides else layer() for slides in sliding]


def _read_gemma3(fields: Fields, config: _engine.ModelConfig) -> None:
    _read_common(fields, config)
    window = fields.integer("sliding_window")
    period = fields.integer("sliding_window_pattern", fields.integer("_sliding_window_pattern", 6))
    sliding = windows_by_type(fields, config, lambda i: (i + 1) % period != 0, window)
    _local_rope(config, sliding, window)


def _read_gemma3_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    _read_gguf_common(fields, config)
    window = fields.integer("attention.sliding_window")
    sliding = fields.flags("attention.sliding_window_pattern", config.num_layers, or_period=6)
    rope = _engine.RopeConfig()
    rope.rotary_dim = config.rope.rotary_dim
    rope.theta = fields.number("rope.freq_base_swa", 10000.0)
    config.local_rope = rope
    _local_rope(config, sliding, window)


GEMMA2 = Family(
    name="gemma2",
    classes=("Gemma2ForCausalLM",),
    gguf="gemma2",
    names=_NAMES,
    traits=_TRAITS,
    gguf_traits=_GGUF_TRAITS,
    defaults=_DEFAULTS | {"attn_logit_softcapping": 50.0, "final_logit_softcapping": 30.0},
    read=_read_gemma2,
    read_gguf=_read_gemma2_gguf,
)
GEMMA3 = Family(
    name="gemma3",
    classes=("Gemma3ForCausalLM",),
    parts_of={"Gemma3ForConditionalGeneration": "language_model."},
    gguf="gemma3",
    names=_NAMES,
    traits=_TRAITS | {"qk_norm": _engine.QkNorm.HEAD},
    gguf_traits=_GGUF_TRAITS,
    defaults=_DEFAULTS
    | {
        "rope_theta": 1e6,
        "rope_local_base_freq": 10000.0,
        "vocab_size": 262208,
        "num_attention_heads": 8,
        "num_key_value_heads": 4,
        "max_position_embeddings": 131072,
    },
    read=_read_gemma3,
    read_gguf=_read_gemma3_gguf,
)
