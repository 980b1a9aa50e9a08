"""What a family of models is: a description that the one decoder executes.

``docs/families.md`` explains how a family is added.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from octavo import _engine
from octavo.models.fields import Fields

# Role of a tensor (an attribute of ``TensorNames``) → what GGUF calls it, "blk.*." before a layer's left out.
GGUF_MODEL_NAMES = {"embedding": "token_embd", "final_norm": "output_norm", "head": "output"}
GGUF_LAYER_NAMES = {
    "attention_norm": "attn_norm",
    "q": "attn_q",
    "k": "attn_k",
    "v": "attn_v",
    "qkv": "attn_qkv",
    "q_norm": "attn_q_norm",
    "k_norm": "attn_k_norm",
    "sinks": "attn_sinks",
    "out": "attn_output",
    "attention_post_norm": "post_attention_norm",
    "mlp_norm": "ffn_norm",
    "gate": "ffn_gate",
    "up": "ffn_up",
    "down": "ffn_down",
    "mlp_post_norm": "post_ffw_norm",
    "router": "ffn_gate_inp",
    "shared_expert_gate": "ffn_gate_shexp",
    "shared_expert_up": "ffn_up_shexp",
    "shared_expert_down": "ffn_down_shexp",
    "shared_gate": "ffn_gate_inp_shexp",
}
# The same for tensors that hold all experts of a layer.
GGUF_EXPERT_NAMES = {
    "expert_gate": "ffn_gate_exps",
    "expert_up": "ffn_up_exps",
    "expert_down": "ffn_down_exps",
}

Reader = Callable[[Fields, _engine.ModelConfig], None]


def nothing_more(fields: Fields, config: _engine.ModelConfig) -> None:
    """Reads no further field."""


@dataclass(frozen=True)
class Family:
    """A family of models.

    Attributes:
        name: for messages and ``octavo info``.
        classes: what ``config.json`` calls it in ``architectures``.
        parts_of: classes of models that hold one of this family beside others, as an encoder of images: what the names
            of its tensors begin with; its configuration is their ``text_config``. Only the text is run.
        gguf: what a GGUF calls it in ``general.architecture``; None: such files are not read.
        names: Hugging Face's tensor names by role, where they differ from Llama's.
        gguf_names: GGUF's tensor names by role, where they differ from the usual ones.
        gguf_interleaved: a GGUF pairs neighbouring dimensions of q and k for the rotation (llama.cpp's ``NORM``).
        traits: attributes of ``ModelConfig`` that are the same in every model of the family.
        gguf_traits: the same, in GGUF files only.
        defaults: what transformers assumes where ``config.json`` leaves a field out.
        read: reads the fields of ``config.json`` that not every family has; unread ones are refused or warned about.
        read_gguf: the same for the metadata below the architecture's prefix.
    """

    name: str
    classes: tuple[str, ...]
    parts_of: Mapping[str, str] = field(default_factory=dict)
    gguf: str | None = None
    names: Mapping[str, str] = field(default_factory=dict)
    gguf_names: Mapping[str, str] = field(default_factory=dict)
    gguf_interleaved: bool = False
    traits: Mapping[str, Any] = field(default_factory=dict)
    gguf_traits: Mapping[str, Any] = field(default_factory=dict)
    defaults: Mapping[str, Any] = field(default_factory=dict)
    read: Reader = nothing_more
    read_gguf: Reader = nothing_more

    def new_config(self) -> _engine.ModelConfig:
        """A configuration with the family's name and tensor names."""
        config = _engine.ModelConfig()
        config.architecture = self.name
        config.names = self.tensor_names()
        return config

    def become_part(self, config: _engine.ModelConfig, prefix: str) -> None:
        """All tensor names of ``config`` begin with ``prefix``."""
        names = config.names
        for role in ("embedding", "final_norm", "head", "layers"):
            setattr(names, role, prefix + getattr(names, role))
        config.names = names
        config.part = prefix

    def set_traits(self, config: _engine.ModelConfig, *, gguf: bool) -> None:
        """Gives ``config`` what every model of the family has."""
        for name, value in {**self.traits, **(self.gguf_traits if gguf else {})}.items():
            setattr(config, name, value)

    def tensor_names(self) -> _engine.TensorNames:
        """Hugging Face's names of the family's tensors."""
        names = _engine.TensorNames()
        for role, name in self.names.items():
            setattr(names, role, name)
        return names

    def gguf_renames(self) -> dict[str, str]:
        """GGUF's name → Hugging Face's, for ``WeightFiles.open_gguf``."""
        names = self.tensor_names()
        renames = {stem: getattr(names, role) for role, stem in GGUF_MODEL_NAMES.items()}
        for role, stem in GGUF_EXPERT_NAMES.items():
            renames[f"blk.*.{stem}"] = f"{names.layers}*.{names.experts}{getattr(names, role)}"
        for table in (GGUF_LAYER_NAMES, self.gguf_names):  # the family's own names take precedence
            for role, stem in table.items():
                renames[f"blk.*.{stem}"] = f"{names.layers}*.{getattr(names, role)}"
        return renames
