"""Qwen2, Qwen2.5 (biases on q, k and v) and Qwen3 (norms of q and k instead)."""

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.families.layers import windows_by_type
from octavo.models.fields import Fields


def read_windows(fields: Fields, config: _engine.ModelConfig) -> None:
    """From layer ``max_window_layers`` on, where ``use_sliding_window`` says so."""
    used = fields.boolean("use_sliding_window", False)
    window = fields.integer("sliding_window", 0, low=0)
    first = fields.integer("max_window_layers", 28, low=0)
    windows_by_type(fields, config, lambda i: used and window > 0 and i >= first, window)


QWEN2 = Family(
    name="qwen2",
    classes=("Qwen2ForCausalLM",),
    gguf="qwen2",
    traits={"attention_bias": True, "attention_output_bias": False},
    defaults={"sliding_window": 4096},
    read=read_windows,
)
QWEN3 = Family(
    name="qwen3",
    classes=("Qwen3ForCausalLM",),
    gguf="qwen3",
    traits={"qk_norm": _engine.QkNorm.HEAD},
    defaults={"sliding_window": 4096, "head_dim": 128},
    read=read_windows,
)
