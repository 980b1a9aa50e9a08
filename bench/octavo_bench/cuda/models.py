"""Small decoders with random weights against torch: each variant of the kernels, then several layers."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch

from octavo import _engine
from octavo_bench.cuda.reference import Variant, logits
from octavo_bench.cuda.report import check
from octavo_bench.cuda.scale import Scale

# The error may be so many times that of a computation whose products round their inputs to bfloat16.
MARGIN = 3.0
EIGHT_BITS = {"int8": 1.5, "fp8": 8.0}  # times more with such a cache


def _variants(scale: Scale) -> Iterator[tuple[Variant, dict[str, Any]]]:
    base = Variant(
        "base",
        scale.groups[0] * 2,
        2,
        scale.head_dims[0],
        scale.hidden,
        2 * scale.hidden,
        min(scale.vocab, 2000),
    )
    for head_dim in scale.head_dims:
        for group in scale.groups:
            yield (
                dataclasses.replace(
                    base, name=f"head {head_dim}, group {group}", heads=2 * group, head_dim=head_dim
                ),
                {},
            )
    for size in scale.block_sizes:
        yield dataclasses.replace(base, name=f"block {size}"), {"block_size": size}
    for dtype in ("bf16", "int8", "fp8"):
        yield dataclasses.replace(base, name=f"cache {dtype}"), {"kv_dtype": dtype}
    yield dataclasses.replace(base, name="window", window=scale.prompt // 3), {}
    yield dataclasses.replace(base, name="softcap and sinks", softcap=5.0, sinks=True), {}
    yield dataclasses.replace(base, name="q and k norm, biases", qk_norm=True, bias=True), {}
    for quantization in ("q8", "q4"):
        yield dataclasses.replace(base, name=f"weights {quantization}"), {"quantization": quantization}


def _check(scale: Scale, variant: Variant, options: dict[str, Any]) -> None:
    options = dict(options)
    quantization = options.pop("quantization", None)
    tensors = variant.weights()
    files = _engine.WeightFiles.from_tensors(tensors)
    if quantization:
        files = _engine.WeightFiles.quantize_on_load(files, quantization)
    n = scale.prompt
    options = {"kv_dtype": "f16"} | options
    runner = _engine.ModelRunner(
        variant.config(2 * n), files, device=scale.device, max_tokens=n, max_positions=2 * n, **options
    )
    if quantization:
        tensors |= {
            name: torch.from_numpy(np.array(runner.dequantized(name)))
            for name, tensor in tensors.items()
            if tensor.dim() == 2
        }
    ids = np.random.default_rng(5).integers(0, variant.vocab, n).tolist()
    where = "cuda" if scale.on_gpu else "cpu"
    exact = logits(variant, tensors, ids, where, torch.float32)
    limit = MARGIN * float((logits(variant, tensors, ids, where, torch.bfloat16) - exact).abs().max())
    limit *= EIGHT_BITS.get(options["kv_dtype"], 1.0)
    whole = np.array(runner.logits(ids))
    off = float(np.abs(whole - exact.cpu().numpy()).max())
    check(variant.name, off <= limit, off, limit)
    # The same bits whether a prompt is computed at once, in pieces, or token by token.
    pieces = np.array(runner.logits(ids, chunk=max(n // 3, 1)))
    check(f"{variant.name}: pieces equal the whole", bool((pieces == whole).all()))
    tail = min(n // 2, 40)
    runner.logits(ids[: n - tail])
    single = np.array(runner.logits(ids, start=n - tail, chunk=1))
    check(f"{variant.name}: single tokens equal the whole", bool((single == whole[n - tail :]).all()))


def run_kernels(scale: Scale) -> None:
    """One layer, so that an error shows where it arises."""
    for variant, options in _variants(scale):
        _check(scale, variant, options)


def run_models(scale: Scale) -> None:
    """Several layers."""
    v = Variant(
        "four layers", 8, 2, scale.head_dims[-1], scale.hidden, 3 * scale.hidden, min(scale.vocab, 5000), 4
    )
    _check(scale, v, {})
    _check(scale, dataclasses.replace(v, name="four layers, window", window=scale.prompt // 2), {})
