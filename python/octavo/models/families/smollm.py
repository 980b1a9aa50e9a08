"""SmolLM3: every fourth layer has no rotary positions (SmolLM2 is a Llama)."""

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.families.layers import Rope, layer, windows_by_type
from octavo.models.fields import Fields

_PERIOD = 4


def _read(fields: Fields, config: _engine.ModelConfig) -> None:
    fields.skip(["pretraining_tp", "max_window_layers"])  # transformers reads neither
    period = fields.integer("no_rope_layer_interval", _PERIOD)
    rotated = fields.flags("no_rope_layers", config.num_layers)  # 1: the layer has rotary positions
    rotated = rotated or [(i + 1) % period != 0 for i in range(config.num_layers)]
    used = fields.boolean("use_sliding_window", False)
    window = fields.integer("sliding_window", 0, low=0)
    sliding = windows_by_type(fields, config, lambda i: used and window > 0 and not rotated[i], window)
    config.layers = [
        layer(window if slides else 0, Rope.GLOBAL if rotates else Rope.NONE)
        for slides, rotates in zip(sliding, rotated, strict=True)
    ]


def _read_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    config.layers = [
        layer(rope=Rope.GLOBAL if (i + 1) % _PERIOD else Rope.NONE) for i in range(config.num_layers)
    ]


SMOLLM3 = Family(
    name="smollm3",
    classes=("SmolLM3ForCausalLM",),
    gguf="smollm3",
    gguf_interleaved=True,
    defaults={"rope_theta": 2e6, "tie_word_embeddings": True},
    read=_read,
    read_gguf=_read_gguf,
)
