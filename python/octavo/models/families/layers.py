"""Which layers have a window, and which rotary positions."""

from __future__ import annotations

from collections.abc import Callable

from octavo import _engine
from octavo.models.fields import Fields

Rope = _engine.LayerRope


def layer(window: int = 0, rope: _engine.LayerRope = Rope.GLOBAL) -> _engine.LayerConfig:
    """One layer's description."""
    out = _engine.LayerConfig()
    out.window = window
    out.rope = rope
    return out


def window_everywhere(fields: Fields, config: _engine.ModelConfig) -> None:
    """Every layer has the window that ``sliding_window`` gives; null is none."""
    if window := fields.integer("sliding_window", 0, low=0):
        config.layers = [layer(window)] * config.num_layers


def windows_by_type(
    fields: Fields, config: _engine.ModelConfig, assumed: Callable[[int], bool], window: int | None
) -> list[bool]:
    """Sets ``window`` where ``layer_types`` says so, else where ``assumed(index)``; the layers that have it."""
    kinds = fields.strings("layer_types", ("full_attention", "sliding_attention"), config.num_layers)
    sliding = [kind == "sliding_attention" for kind in kinds] or [
        assumed(i) for i in range(config.num_layers)
    ]
    if any(sliding) and not window:
        raise fields.corrupt("sliding_window", f"is {window!r}, but layers with a window are named")
    if any(sliding):
        config.layers = [layer(window or 0) if slides else layer() for slides in sliding]
    return sliding
