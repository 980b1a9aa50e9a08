"""Datasets drawn from a seed."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from octavo_bench.client import Shot
from octavo_bench.datasets.prompts import PromptMaker

if TYPE_CHECKING:
    from octavo_bench.datasets.dataset import DatasetOptions

DEFAULT_OUTPUT = 128


def random_prompts(options: DatasetOptions, count: int, maker: PromptMaker) -> list[Shot]:
    """Independent prompts behind ``prefix_len`` common tokens."""
    prefix = maker.draw(options.prefix_len)
    inputs = _lengths(options.input_len, options.range_ratio, count, maker.rng)
    outputs = _lengths(options.output_len or DEFAULT_OUTPUT, options.range_ratio, count, maker.rng)
    return [
        Shot(0.0, maker.join(prefix, maker.draw(int(i))), int(o))
        for i, o in zip(inputs, outputs, strict=True)
    ]


def prefix_groups(options: DatasetOptions, count: int, maker: PromptMaker) -> list[Shot]:
    """Prompts that share their beginning with those of their group; some groups may be more popular than others."""
    prefixes = [maker.draw(options.prefix_len) for _ in range(options.num_prefixes)]
    if options.zipf:
        weights = 1 / np.arange(1, options.num_prefixes + 1) ** options.zipf
        groups = maker.rng.choice(options.num_prefixes, count, p=weights / weights.sum())
    else:
        groups = maker.rng.permutation(np.arange(count) % options.num_prefixes)
    output = options.output_len or DEFAULT_OUTPUT
    return [Shot(0.0, maker.join(prefixes[g], maker.draw(options.input_len)), output) for g in groups]


def conversations(options: DatasetOptions, count: int, maker: PromptMaker) -> list[Shot]:
    """Conversations whose every question stands behind all that was said before, real answers included."""
    shots: list[Shot] = []
    system = maker.draw(options.prefix_len)
    output = options.output_len or DEFAULT_OUTPUT
    while len(shots) < count:
        for turn in range(min(options.turns, count - len(shots))):
            question = maker.draw(options.input_len)
            if turn == 0:
                shots.append(Shot(0.0, maker.join(system, question), output))
            else:
                previous = len(shots) - 1
                shots.append(Shot(0.0, question, output, previous=previous, think=options.think_s))
    return shots


def _lengths(length: int, ratio: float, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    low, high = max(1, math.floor(length * (1 - ratio))), math.ceil(length * (1 + ratio))
    return rng.integers(low, high, count, endpoint=True)
