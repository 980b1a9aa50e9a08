"""Llama 2, 3 and 3.x, SmolLM2, Falcon 3 and whatever else calls itself Llama; Mistral, which may have a window."""

from octavo import _engine
from octavo.models.families.family import Family
from octavo.models.families.layers import layer, window_everywhere
from octavo.models.families.moe import read_gguf_experts
from octavo.models.fields import Fields


def _read(fields: Fields, config: _engine.ModelConfig) -> None:
    fields.only("pretraining_tp", (1, None), None)


def _read_gguf(fields: Fields, config: _engine.ModelConfig) -> None:
    if window := fields.integer("attention.sliding_window", 0, low=0):
        config.layers = [layer(window)] * config.num_layers
    if fields.integer("expert_count", 0, low=0):
        read_gguf_experts(fields, config)


LLAMA = Family(
    name="llama",
    classes=("LlamaForCausalLM",),
    gguf="llama",
    gguf_interleaved=True,
    read=_read,
    read_gguf=_read_gguf,
)
# A GGUF of a Mistral or a Mixtral says that it is a Llama.
MISTRAL = Family(
    name="mistral", classes=("MistralForCausalLM",), defaults={"sliding_window": 4096}, read=window_everywhere
)
