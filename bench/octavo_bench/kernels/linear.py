"""Linear layers: weights of every format at the shapes of models, for one row and for many."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from octavo import ops
from octavo_bench.kernels.timing import Figure, best_seconds

# (n, k): SmolLM2's four products and its head, and a 1B model's square and wide ones.
SHAPES = ((960, 576), (3072, 576), (576, 1536), (49152, 576), (2048, 2048), (8192, 2048))
ROWS = (1, 4, 8, 32, 128, 512)
BLOCK_BYTES = {"q4_0": 18, "q4_1": 20, "q5_0": 22, "q5_1": 24, "q8_0": 34}
FORMATS = ("f32", "bf16", "f16", *BLOCK_BYTES)
BEYOND_CACHES = 128 << 20  # bytes of weights to rotate through, so that reading them comes from memory


def _weight(rng: np.random.Generator, n: int, k: int, fmt: str) -> tuple[np.ndarray[Any, Any], str]:
    if fmt in BLOCK_BYTES:
        blocks = k // 32
        raw = rng.integers(0, 256, (n, blocks, BLOCK_BYTES[fmt]), dtype=np.uint8)
        scale = np.full((n, blocks), 0.01, np.float16).view(np.uint8).reshape(n, blocks, 2)
        raw[..., :2] = scale
        if fmt in ("q4_1", "q5_1"):
            raw[..., 2:4] = scale
        return raw.reshape(n, -1), fmt
    dense = (rng.standard_normal((n, k)) * 0.05).astype(np.float32)
    if fmt == "bf16":
        import torch

        return torch.from_numpy(dense).to(torch.bfloat16), ""  # type: ignore[return-value]
    return dense.astype({"f32": np.float32, "f16": np.float16}[fmt]), ""


def _ceiling(fmt: str, isa: str, ceilings: Mapping[str, float]) -> tuple[str, float]:
    if fmt == "q8_0" and isa != "avx512bf16":
        return "GOP/s", ceilings["int16_gops"]
    if fmt in BLOCK_BYTES:
        return "GOP/s", ceilings["int8_gops"]
    if fmt == "bf16" and isa == "avx512bf16":
        return "GFLOP/s", ceilings["bf16_gflops"]
    return "GFLOP/s", ceilings["fma_gflops"]


def measure(
    context: ops.Context,
    ceilings: Mapping[str, float],
    budget: float,
    formats: Sequence[str] = FORMATS,
    shapes: Sequence[tuple[int, int]] = SHAPES,
) -> Iterator[Figure]:
    """Every format at every shape; results are checked against a float64 product while timing."""
    rng = np.random.default_rng(1)
    for n, k in shapes:
        for fmt in formats:
            raw, name = _weight(rng, n, k, fmt)
            first = ops.pack_linear(raw, name, context=context)
            copies = max(1, min(48, BEYOND_CACHES // max(1, first.nbytes)))
            packed = [first] + [ops.pack_linear(raw, name, context=context) for _ in range(copies - 1)]
            values = first.dequantize()
            for m in ROWS:
                if m * n * k > 12e9:
                    continue
                x = rng.standard_normal((m, k)).astype(np.float32)
                out = np.empty((m, n), np.float32)
                calls = [functools.partial(ops.linear, x, w, out=out, context=context) for w in packed]
                seconds = best_seconds(calls, budget)
                want = x.astype(np.float64) @ values[:256].astype(np.float64).T
                error = float(np.abs(out[:, :256] - want).max() / np.abs(want).max())
                shape = f"{n}x{k} M={m}"
                if m == 1:
                    rate = first.nbytes / seconds / 1e9
                    yield Figure(f"linear {fmt}", shape, rate, "GB/s", ceilings["read_gbytes"], error)
                else:
                    unit, ceiling = _ceiling(fmt, context.isa, ceilings)
                    yield Figure(
                        f"linear {fmt}", shape, 2.0 * m * n * k / seconds / 1e9, unit, ceiling, error
                    )
