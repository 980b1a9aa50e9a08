"""Granite 3: a Llama with multipliers."""

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.fields import Fields


def _read(fields: Fields, config: _engine.ModelConfig) -> None:
    config.embedding_scale = fields.number("embedding_multiplier", 1.0)
    config.residual_scale = fields.number("residual_multiplier", 1.0)
    config.attention_scale = fields.number("attention_multiplier", 1.0)
    config.logit_scale = 1.0 / fields.number("logits_scaling", 1.0)


def _read_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    config.embedding_scale = fields.number("embedding_scale", 1.0)
    config.residual_scale = fields.number("residual_scale", 1.0)
    config.attention_scale = fields.number("attention.scale", 0.0) or 0.0
    config.logit_scale = 1.0 / fields.number("logit_scale", 1.0)


GRANITE = Family(
    name="granite",
    classes=("GraniteForCausalLM",),
    gguf="granite",
    gguf_interleaved=True,
    read=_read,
    read_gguf=_read_gguf,
)
