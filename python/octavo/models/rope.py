"""Rotary positions as ``config.json`` describes them."""

from __future__ import annotations

import math

from octavo import _engine
from octavo.models.fields import Fields

_MOST_POSITIONS = 2**31 - 1
_Scaling = _engine.RopeConfig.Scaling
_KINDS = {
    "default": _Scaling.NONE,
    "linear": _Scaling.LINEAR,
    "llama3": _Scaling.LLAMA3,
    "dynamic": _Scaling.DYNAMIC,
    "yarn": _Scaling.YARN,
    "longrope": _Scaling.LONGROPE,
    "su": _Scaling.LONGROPE,  # what the first Phi-3 called it
}


def set_rope(fields: Fields, config: _engine.ModelConfig) -> None:
    """Reads ``rope_parameters`` (transformers 5) or ``rope_theta`` and ``rope_scaling`` (before) into ``config``.

    ``config.max_positions`` grows where a scaling is meant to reach beyond ``max_position_embeddings``.
    """
    theta = fields.number("rope_theta", 10000.0)
    local_theta = fields.number("rope_local_base_freq", None)
    partial = fields.number("partial_rotary_factor", 1.0)
    trained = fields.integer("original_max_position_embeddings", 0)
    older = fields.mapping("rope_scaling")
    newer = fields.mapping("rope_parameters")
    name = "rope_parameters" if newer else "rope_scaling"
    scaling = Fields(newer or older, f"{fields.source}: {name}")
    if "full_attention" in scaling.values:  # one for each kind of layer
        full = Fields(scaling.mapping("full_attention"), f"{scaling.source}.full_attention")
        sliding = Fields(scaling.mapping("sliding_attention"), f"{scaling.source}.sliding_attention")
        config.rope = _read(full, config, theta, partial, trained)
        config.local_rope = _read(sliding, config, local_theta or theta, partial, trained)
        return
    config.rope = _read(scaling, config, theta, partial, trained)
    if local_theta is not None:
        rope = _engine.RopeConfig()
        rope.rotary_dim = config.rope.rotary_dim
        rope.theta = local_theta
        config.local_rope = rope


def _read(
    scaling: Fields, config: _engine.ModelConfig, theta: float, partial: float, trained: int
) -> _engine.RopeConfig:
    rope = _engine.RopeConfig()
    rope.theta = scaling.number("rope_theta", theta)
    partial = scaling.number("partial_rotary_factor", partial)
    if partial > 1:
        raise scaling.corrupt("partial_rotary_factor", f"must be at most 1, got {partial}")
    rope.rotary_dim = int(config.head_dim * partial)
    kind = scaling.only("type", tuple(_KINDS), "default")
    kind = scaling.only("rope_type", tuple(_KINDS), kind)
    rope.scaling = _KINDS[kind]
    if rope.scaling == _Scaling.NONE:
        scaling.skip(["original_max_position_embeddings"])
        scaling.only("factor", (1.0,), 1.0)
    elif rope.scaling == _Scaling.LINEAR:
        rope.factor = scaling.number("factor")
    elif rope.scaling == _Scaling.LLAMA3:
        _read_llama3(scaling, config, rope)
    elif rope.scaling == _Scaling.DYNAMIC:
        rope.factor = scaling.number("factor")
        rope.original_max_positions = scaling.integer(
            "original_max_position_embeddings", config.max_positions
        )
        _extend(scaling, config, rope)
    elif rope.scaling == _Scaling.YARN:
        _read_yarn(scaling, config, rope)
    else:
        _read_longrope(scaling, config, rope, trained)
    if unknown := scaling.unread():
        raise scaling.unsupported(
            unknown[0], f"is {scaling.values[unknown[0]]!r}, a field rope type {kind} does not have"
        )
    return rope


def _extend(scaling: Fields, config: _engine.ModelConfig, rope: _engine.RopeConfig) -> None:
    """Let the positions reach as far as the scaling is meant to."""
    reach = rope.original_max_positions * rope.factor
    if reach > _MOST_POSITIONS:
        raise scaling.corrupt("factor", f"stretches positions to {reach:g}, the limit is {_MOST_POSITIONS}")
    config.max_positions = max(config.max_positions, int(reach))


def _read_llama3(scaling: Fields, config: _engine.ModelConfig, rope: _engine.RopeConfig) -> None:
    rope.factor = scaling.number("factor")
    rope.low_freq_factor = scaling.number("low_freq_factor")
    rope.high_freq_factor = scaling.number("high_freq_factor")
    rope.original_max_positions = scaling.integer("original_max_position_embeddings", config.max_positions)
    if rope.high_freq_factor <= rope.low_freq_factor:
        limit = rope.low_freq_factor
        raise scaling.corrupt(
            "high_freq_factor", f"must exceed low_freq_factor ({limit}), got {rope.high_freq_factor}"
        )


def yarn_attention_factor(factor: float, weight: float = 1.0) -> float:
    """What YaRN multiplies cosines and sines with, from the factor by which positions are stretched."""
    return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0


def _read_yarn(scaling: Fields, config: _engine.ModelConfig, rope: _engine.RopeConfig) -> None:
    rope.original_max_positions = scaling.integer("original_max_position_embeddings", config.max_positions)
    rope.factor = scaling.number("factor", config.max_positions / rope.original_max_positions)
    rope.beta_fast = scaling.number("beta_fast", 32.0)
    rope.beta_slow = scaling.number("beta_slow", 1.0)
    rope.truncate = scaling.boolean("truncate", True)
    scale, scale_all = scaling.number("mscale", None), scaling.number("mscale_all_dim", None)
    inferred = yarn_attention_factor(rope.factor)
    if scale and scale_all:
        inferred = yarn_attention_factor(rope.factor, scale) / yarn_attention_factor(rope.factor, scale_all)
    rope.attention_factor = scaling.number("attention_factor", inferred)
    _extend(scaling, config, rope)


def _read_longrope(
    scaling: Fields, config: _engine.ModelConfig, rope: _engine.RopeConfig, trained: int
) -> None:
    rope.original_max_positions = scaling.integer(
        "original_max_position_embeddings", trained or config.max_positions, low=2
    )
    rope.freq_factors = scaling.numbers("short_factor")
    rope.long_factors = scaling.numbers("long_factor")
    for name in ("short_factor", "long_factor"):
        count = len(scaling.values.get(name) or ())
        if count != rope.rotary_dim // 2:
            raise scaling.corrupt(name, f"must have {rope.rotary_dim // 2} numbers, got {count}")
    factor = scaling.number("factor", config.max_positions / rope.original_max_positions)
    inferred = 1.0 if factor <= 1 else math.sqrt(1 + math.log(factor) / math.log(rope.original_max_positions))
    rope.attention_factor = scaling.number("attention_factor", inferred)
