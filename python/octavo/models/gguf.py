"""From GGUF metadata to the engine's ``ModelConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo import _engine
from octavo.models.config import MAX_LAYERS, MAX_VOCAB, MAX_WIDTH
from octavo.models.fields import Fields

_ROPE_FACTORS = "rope_freqs.weight"
_EMBEDDING = "model.embed_tokens.weight"
# Keys below the architecture's prefix that would change the result if they had another value.
_NEUTRAL: dict[str, tuple[Any, ...]] = {
    "expert_count": (0, None),
    "expert_used_count": (0, None),
    "attention.sliding_window": (0, None),
    "attention.causal": (True, None),
    "use_parallel_residual": (False, None),
    "rope.scaling.attn_factor": (1.0, None),
}
# ... and those that only describe.
_NO_EFFECT = ("tensor_data_layout", "rope.scaling.finetuned")


def from_gguf(
    metadata: Mapping[str, Any], weights: _engine.WeightFiles, *, source: str = "GGUF"
) -> _engine.ModelConfig:
    """The engine's configuration of a GGUF file.

    Args:
        metadata: ``GgufFile.metadata()``.
        weights: its tensors, which tell what the metadata does not: vocabulary, tied head, biases, RoPE factors.
        source: the file, for messages.

    Raises:
        ModelError: a key is missing, malformed or cannot be honoured (named in ``param``).
    """
    fields = Fields(metadata, source)
    arch = fields.only("general.architecture", _engine.gguf_architectures(), None)
    shapes = {name: shape for name, shape, _, _ in weights.tensors()}

    def key(name: str) -> str:
        return f"{arch}.{name}"

    out = _engine.ModelConfig()
    out.architecture = arch
    out.num_layers = fields.integer(key("block_count"), high=MAX_LAYERS)
    out.hidden = fields.integer(key("embedding_length"), high=MAX_WIDTH)
    out.intermediate = fields.integer(key("feed_forward_length"), high=MAX_WIDTH)
    out.heads = fields.integer(key("attention.head_count"), high=MAX_WIDTH)
    out.kv_heads = fields.integer(key("attention.head_count_kv"), out.heads, high=out.heads)
    if out.heads % out.kv_heads:
        name = key("attention.head_count_kv")
        raise fields.corrupt(name, f"must divide the {out.heads} heads, got {out.kv_heads}")
    out.head_dim = fields.integer(key("attention.key_length"), 0, high=MAX_WIDTH) or out.hidden // out.heads
    fields.only(key("attention.value_length"), (out.head_dim,), out.head_dim)
    out.max_positions = fields.integer(key("context_length"))
    out.norm_eps = fields.number(key("attention.layer_norm_rms_epsilon"))
    # The embedding may have more rows than the vocabulary has tokens.
    declared = fields.integer(key("vocab_size"), 0, high=MAX_VOCAB)
    out.vocab = shapes[_EMBEDDING][0] if _EMBEDDING in shapes else declared
    out.tied_embeddings = "lm_head.weight" not in shapes
    out.attention_bias = "model.layers.0.self_attn.q_proj.bias" in shapes
    out.attention_output_bias = "model.layers.0.self_attn.o_proj.bias" in shapes
    out.mlp_bias = "model.layers.0.mlp.down_proj.bias" in shapes
    out.rope = _rope(fields, key, out.head_dim)
    if _ROPE_FACTORS in shapes:
        out.rope.freq_factors = weights.read_vector(_ROPE_FACTORS).tolist()
    for name, neutral in _NEUTRAL.items():
        fields.only(key(name), neutral, None)
    fields.skip([key(name) for name in _NO_EFFECT])
    for name in fields.unread():
        if name.startswith(key("")):
            raise fields.unsupported(name, f"is {metadata[name]!r}, a key octavo does not know for {arch}")
    out.eos_token_ids = _end_tokens(fields)
    bos = fields.token_ids("tokenizer.ggml.bos_token_id")
    out.bos_token_id = bos[0] if bos else -1
    return out


def _rope(fields: Fields, key: Any, head_dim: int) -> _engine.RopeConfig:
    rope = _engine.RopeConfig()
    # Rows of q and k were interleaved over whole heads, so a narrower rotation would pair other dimensions.
    rope.rotary_dim = fields.only(key("rope.dimension_count"), (head_dim,), head_dim)
    rope.theta = fields.number(key("rope.freq_base"), 10000.0)
    # Without a type, a factor means linear scaling.
    kind = fields.only(key("rope.scaling.type"), ("none", "linear"), "linear")
    factor = fields.number(key("rope.scaling.factor"), fields.number(key("rope.scale_linear"), 1.0))
    fields.skip([key("rope.scaling.original_context_length")])
    if kind == "linear" and factor != 1.0:
        rope.scaling = _engine.RopeConfig.Scaling.LINEAR
        rope.factor = factor
    return rope


def _end_tokens(fields: Fields) -> list[int]:
    """A GGUF has no generation configuration: every kind of end token it names ends a text."""
    ids: list[int] = []
    for kind in ("eos", "eot", "eom"):
        ids += [i for i in fields.token_ids(f"tokenizer.ggml.{kind}_token_id") if i not in ids]
    return ids
