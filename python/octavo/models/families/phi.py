"""Phi-3, Phi-3.5, Phi-4 and Phi-4-mini: q, k and v in one matrix, gate and up in another, LongRoPE."""

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.families.layers import layer, window_everywhere
from octavo.models.fields import Fields


def _read(fields: Fields, config: _engine.ModelConfig) -> None:
    window_everywhere(fields, config)
    fields.only("lm_head_bias", (False,), False)
    fields.only("full_attn_mod", (1,), 1)
    fields.only("interpolate_factor", (1,), 1)


def _read_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    if window := fields.integer("attention.sliding_window", 0, low=0):
        config.layers = [layer(window)] * config.num_layers


PHI3 = Family(
    name="phi3",
    classes=("Phi3ForCausalLM",),
    gguf="phi3",
    gguf_names={"gate_up": "ffn_up"},
    defaults={"rms_norm_eps": 1e-5},
    read=_read,
    read_gguf=_read_gguf,
)
