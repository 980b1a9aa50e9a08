"""From GGUF metadata to the engine's ``ModelConfig``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from octavo import _engine
from octavo.models import families
from octavo.models.config import MAX_LAYERS, MAX_VOCAB, MAX_WIDTH, drop_wide_windows
from octavo.models.fields import Fields
from octavo.models.rope import yarn_attention_factor

_Scaling = _engine.RopeConfig.Scaling
_ROPE_FACTORS = "rope_freqs.weight"
_LONG_FACTORS, _SHORT_FACTORS = "rope_factors_long.weight", "rope_factors_short.weight"
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
    everything = Fields(metadata, source)
    family = families.of_gguf(metadata.get("general.architecture"), source)
    fields = everything.below(f"{family.gguf}.")
    shapes = {name: shape for name, shape, _, _ in weights.tensors()}
    out = family.new_config()
    names = out.names

    def biased(role: str) -> bool:
        return f"{names.layers}0.{getattr(names, role)}.bias" in shapes

    out.num_layers = fields.integer("block_count", high=MAX_LAYERS)
    out.hidden = fields.integer("embedding_length", high=MAX_WIDTH)
    out.intermediate = fields.integer("feed_forward_length", high=MAX_WIDTH)
    out.heads = fields.integer("attention.head_count", high=MAX_WIDTH)
    out.kv_heads = fields.integer("attention.head_count_kv", out.heads, high=out.heads)
    if out.heads % out.kv_heads:
        raise fields.corrupt(
            "attention.head_count_kv", f"must divide the {out.heads} heads, got {out.kv_heads}"
        )
    out.head_dim = fields.integer("attention.key_length", 0, high=MAX_WIDTH) or out.hidden // out.heads
    fields.only("attention.value_length", (out.head_dim,), out.head_dim)
    out.max_positions = fields.integer("context_length")
    out.norm_eps = fields.number("attention.layer_norm_rms_epsilon")
    # The embedding may have more rows than the vocabulary has tokens.
    declared = fields.integer("vocab_size", 0, high=MAX_VOCAB)
    embedding = f"{names.embedding}.weight"
    out.vocab = shapes[embedding][0] if embedding in shapes else declared
    tokens = metadata.get("tokenizer.ggml.tokens")
    _check_vocab_size(fields, declared, len(tokens) if isinstance(tokens, list) else 0, out.vocab)
    out.tied_embeddings = f"{names.head}.weight" not in shapes
    out.attention_bias = biased("q") or biased("qkv")
    out.attention_output_bias = biased("out")
    out.mlp_bias = biased("down")
    out.rope = _rope(fields, out, weights, shapes)
    out.rope_interleaved = family.gguf_interleaved
    family.set_traits(out, gguf=True)
    family.read_gguf(fields, out)
    drop_wide_windows(out)
    for name in set(_NEUTRAL).intersection(fields.unread()):
        fields.only(name, _NEUTRAL[name], None)
    fields.skip(_NO_EFFECT)
    for name in fields.unread():
        value = metadata[f"{family.gguf}.{name}"]
        raise fields.unsupported(name, f"is {value!r}, a key octavo does not know for {family.gguf}")
    out.eos_token_ids = _end_tokens(everything)
    bos = everything.token_ids("tokenizer.ggml.bos_token_id")
    out.bos_token_id = bos[0] if bos else -1
    return out


def _check_vocab_size(fields: Fields, declared: int, tokens: int, rows: int) -> None:
    if declared and not tokens <= declared <= rows:
        raise fields.corrupt(
            "vocab_size",
            f"is {declared}, but the file has {tokens} tokens and an embedding of {rows} rows",
        )


def _rope(
    fields: Fields, config: _engine.ModelConfig, weights: _engine.WeightFiles, shapes: Mapping[str, Any]
) -> _engine.RopeConfig:
    rope = _engine.RopeConfig()
    rope.rotary_dim = fields.integer("rope.dimension_count", config.head_dim, low=2, high=config.head_dim)
    rope.theta = fields.number("rope.freq_base", 10000.0)
    # Without a type, a factor means linear scaling.
    kind = fields.only("rope.scaling.type", ("none", "linear", "yarn", "longrope"), "linear")
    factor = fields.number("rope.scaling.factor", fields.number("rope.scale_linear", 1.0))
    trained = fields.integer("rope.scaling.original_context_length", config.max_positions)
    if _ROPE_FACTORS in shapes:
        rope.freq_factors = weights.read_vector(_ROPE_FACTORS).tolist()
    if _LONG_FACTORS in shapes and _SHORT_FACTORS in shapes:
        rope.scaling = _Scaling.LONGROPE
        rope.original_max_positions = trained
        rope.freq_factors = weights.read_vector(_SHORT_FACTORS).tolist()
        rope.long_factors = weights.read_vector(_LONG_FACTORS).tolist()
        rope.attention_factor = fields.number("rope.scaling.attn_factor", 1.0)
    elif kind == "yarn":
        rope.scaling = _Scaling.YARN
        rope.factor = factor
        rope.original_max_positions = trained
        rope.beta_fast = fields.number("rope.scaling.yarn_beta_fast", 32.0)
        rope.beta_slow = fields.number("rope.scaling.yarn_beta_slow", 1.0)
        rope.attention_factor = fields.number("rope.scaling.attn_factor", 1.0) * yarn_attention_factor(factor)
    elif kind == "longrope":
        raise fields.corrupt(
            "rope.scaling.type", f"is 'longrope', but the file has no {_LONG_FACTORS} and {_SHORT_FACTORS}"
        )
    elif kind == "linear" and factor != 1.0:
        rope.scaling = _Scaling.LINEAR
        rope.factor = factor
    return rope


def _end_tokens(fields: Fields) -> list[int]:
    """A GGUF has no generation configuration: every kind of end token it names ends a text."""
    ids: list[int] = []
    for kind in ("eos", "eot", "eom"):
        ids += [i for i in fields.token_ids(f"tokenizer.ggml.{kind}_token_id") if i not in ids]
    return ids
