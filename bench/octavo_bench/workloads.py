"""The four workloads that compare servers: one stream, a batch, a shared prompt, prompts alone.

All greedy with the end token ignored, prompts as token ids drawn from a seeded generator, so that every server
computes the same number of tokens.
"""

from __future__ import annotations

import random
from dataclasses import dataclass

from octavo_bench.client import Load, Shot

# Ids below are special tokens or bytes in the vocabularies at hand.
FIRST_ID = 300


@dataclass(frozen=True, slots=True)
class Shape:
    """How large the workloads are; the defaults are those of the published table."""

    batch: int = 32
    prompt: int = 128
    output: int = 128
    shared_prompt: int = 1024
    shared_suffix: int = 32
    shared_output: int = 64
    prefill_batch: int = 8
    prefill_prompt: int = 1024


# For models that take long.
SHORT = Shape(batch=8, prompt=64, output=32, shared_output=32, prefill_batch=2)


def _ids(rng: random.Random, n: int, vocab: int) -> list[int]:
    return [rng.randrange(FIRST_ID, vocab) for _ in range(n)]


def one_stream(shape: Shape, vocab: int, seed: int) -> Load:
    """W1: one request; its decode rate is 1 / TPOT."""
    rng = random.Random(f"w1-{seed}")
    return Load([_shot(_ids(rng, shape.prompt, vocab), shape.output)])


def batch(shape: Shape, vocab: int, seed: int) -> Load:
    """W2: distinct prompts, all at once."""
    rng = random.Random(f"w2-{seed}")
    return Load([_shot(_ids(rng, shape.prompt, vocab), shape.output) for _ in range(shape.batch)])


def shared_prompt(shape: Shape, vocab: int, seed: int, suffix_seed: int) -> Load:
    """W3: one common prompt, distinct suffixes; cold with a new ``seed``, warm with only a new ``suffix_seed``."""
    common = _ids(random.Random(f"w3-{seed}"), shape.shared_prompt, vocab)
    rng = random.Random(f"w3-{seed}-{suffix_seed}")
    return Load(
        [
            _shot(common + _ids(rng, shape.shared_suffix, vocab), shape.shared_output)
            for _ in range(shape.batch)
        ]
    )


def prompts_alone(shape: Shape, vocab: int, seed: int) -> Load:
    """W4: long distinct prompts, one token out."""
    rng = random.Random(f"w4-{seed}")
    return Load([_shot(_ids(rng, shape.prefill_prompt, vocab), 1) for _ in range(shape.prefill_batch)])


def _shot(prompt: list[int], max_tokens: int) -> Shot:
    return Shot(due=0.0, prompt=prompt, max_tokens=max_tokens, extra={"ignore_eos": True})
