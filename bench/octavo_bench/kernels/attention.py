"""Paged attention: prefill, decode, and decode behind a prefix that all sequences share."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from octavo import ops
from octavo_bench.kernels.timing import Figure, best_seconds

HEADS, KV_HEADS, DIM, BLOCK = 9, 3, 64, 16
PARTITION = 128
BEYOND_CACHES = 128 << 20  # bytes of cache to rotate through, so that reading comes from memory


class _Cache:
    """Filled f16 caches, alike and ``copies`` of them, for ``seqs`` sequences of ``length`` positions, of which
    ``shared`` lead all of them."""

    def __init__(
        self, rng: np.random.Generator, seqs: int, length: int, shared: int = 0, copies: int = 1
    ) -> None:
        own = (length - shared + BLOCK - 1) // BLOCK
        blocks = shared // BLOCK + seqs * own
        self.k = np.empty((copies, blocks, KV_HEADS, DIM, BLOCK), np.float16)
        self.v = np.empty((copies, blocks, KV_HEADS, BLOCK, DIM), np.float16)
        self.k[:] = rng.standard_normal(self.k.shape[1:]).astype(np.float16)
        self.v[:] = rng.standard_normal(self.v.shape[1:]).astype(np.float16)
        common = np.arange(shared // BLOCK, dtype=np.int32)
        first = shared // BLOCK
        rows = [np.arange(first + s * own, first + (s + 1) * own, dtype=np.int32) for s in range(seqs)]
        self.tables = np.stack([np.concatenate([common, row]) for row in rows]).astype(np.int32)
        self.lengths = [length] * seqs


def _reference(q: np.ndarray[Any, Any], cache: _Cache, seq: int, position: int) -> np.ndarray[Any, Any]:
    """One query token, in float64."""
    table = cache.tables[seq]
    k = np.concatenate([cache.k[0, b].transpose(0, 2, 1) for b in table], axis=1)[:, : position + 1].astype(
        np.float64
    )
    v = np.concatenate([cache.v[0, b] for b in table], axis=1)[:, : position + 1].astype(np.float64)
    out = np.empty((HEADS, DIM))
    for head in range(HEADS):
        kv = head // (HEADS // KV_HEADS)
        scores = k[kv] @ q[head].astype(np.float64) / np.sqrt(DIM)
        weights = np.exp(scores - scores.max())
        out[head] = weights / weights.sum() @ v[kv]
    return out


def _figure(
    context: ops.Context,
    name: str,
    shape: str,
    cache: _Cache,
    query: int,
    amount: float,
    unit: str,
    ceiling: float,
    budget: float,
    groups: list[tuple[list[int], int]] | None = None,
) -> Figure:
    rng = np.random.default_rng(2)
    seqs = len(cache.lengths)
    q = rng.standard_normal((seqs * query, HEADS, DIM)).astype(np.float32)
    out = np.empty_like(q)

    def call(k: np.ndarray[Any, Any], v: np.ndarray[Any, Any]) -> object:
        return ops.paged_attention(
            q,
            k,
            v,
            cache.tables,
            cache.lengths,
            [query] * seqs,
            scale=DIM**-0.5,
            prefix_groups=groups or (),
            out=out,
            context=context,
        )

    calls = [functools.partial(call, k, v) for k, v in zip(cache.k, cache.v, strict=True)]
    seconds = best_seconds(calls, budget)
    position = cache.lengths[0] - 1
    want = _reference(q[query - 1], cache, 0, position)
    error = float(np.abs(out[query - 1] - want).max() / np.abs(want).max())
    return Figure(name, shape, amount / seconds / 1e9, unit, ceiling, error)


def measure(context: ops.Context, ceilings: Mapping[str, float], budget: float) -> Iterator[Figure]:
    """GFLOP/s against the peak of what multiplies, float32 or bf16, where queries are many; GB/s of cache against
    reading where they are few."""
    peak = ceilings["bf16_gflops" if context.isa == "avx512bf16" else "fma_gflops"]
    rng = np.random.default_rng(3)
    for length in (128, 1024, 4096):
        cache = _Cache(rng, 1, length)
        pairs = length * (length + 1) / 2
        yield _figure(
            context, "attention prefill f16", f"{length} tokens", cache, length, pairs * HEADS * DIM * 4,
            "GFLOP/s", peak, budget,
        )  # fmt: skip
    for seqs, length in ((1, 4096), (8, 4096), (32, 256), (32, 1024)):
        amount = seqs * length * KV_HEADS * DIM * 2 * 2.0
        cache = _Cache(rng, seqs, length, copies=int(BEYOND_CACHES // amount) + 1)
        yield _figure(
            context, "attention decode f16", f"{seqs} x {length}", cache, 1, amount, "GB/s",
            ceilings["read_gbytes"], budget,
        )  # fmt: skip
    cache = _Cache(rng, 32, 1024 + 32, shared=1024)
    flops = 32 * (1024 + 32) * HEADS * DIM * 4.0
    yield _figure(
        context, "attention shared prefix f16", "32 x 1024 shared", cache, 1, flops, "GFLOP/s",
        peak, budget, [(list(range(32)), 1024 // PARTITION)],
    )  # fmt: skip
