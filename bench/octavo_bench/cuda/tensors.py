"""`octavo.ops` on torch tensors where torch has them, in a stream of torch's, against torch."""

from __future__ import annotations

import contextlib
from typing import Any

import torch

from octavo import ops
from octavo_bench.cuda.report import check
from octavo_bench.cuda.scale import Scale

FLOAT32, BFLOAT16, HALF = 1e-5, 2.0**-7, 2.0**-9  # of the largest value


def _compare(name: str, got: Any, want: torch.Tensor, limit: float) -> None:
    error = float((got.double() - want.double()).abs().max() / want.abs().max())
    check(name, error <= limit, error, limit)


def run(scale: Scale) -> None:
    """Every function once, then the order of work in the stream."""
    where = "cuda" if scale.on_gpu else "cpu"
    stream = torch.cuda.stream(torch.cuda.Stream()) if scale.on_gpu else contextlib.nullcontext()  # type: ignore[no-untyped-call]
    torch.manual_seed(7)
    with stream, torch.no_grad():
        _rows(scale, where)
        _attention(scale, where)
        _order(scale, where)


def _rows(scale: Scale, where: str) -> None:
    hidden = scale.hidden
    x, weight = torch.randn(37, hidden, device=where), torch.randn(hidden, device=where)
    wanted = torch.nn.functional.rms_norm(x, (hidden,), weight, 1e-5)
    _compare("rms_norm", ops.rms_norm(x, weight, 1e-5), wanted, FLOAT32)
    gate, up = x.chunk(2, -1)
    _compare("silu_and_mul", ops.silu_and_mul(x), torch.nn.functional.silu(gate) * up, FLOAT32)
    matrix = torch.randn(hidden, hidden, device=where).bfloat16()
    product = ops.linear(x, ops.pack_linear(matrix), weight)
    _compare("linear, bfloat16", product, x @ matrix.float().T + weight, BFLOAT16)
    dim, positions = scale.head_dims[0], torch.arange(37, device=where, dtype=torch.int32)
    q, k = torch.randn(37, 4, dim, device=where), torch.randn(37, 2, dim, device=where)
    table = torch.from_numpy(ops.rope_table(64, dim)).to(where)
    cos, sin = table[:37, None].chunk(2, -1)
    a, b = q.chunk(2, -1)
    wanted = torch.cat([a * cos - b * sin, b * cos + a * sin], -1)
    ops.rope(q, k, positions, table)
    _compare("rope", q, wanted, FLOAT32)


def _attention(scale: Scale, where: str) -> None:
    dim, group, size, n = scale.head_dims[0], scale.groups[0], scale.block_sizes[0], scale.prompt
    kv_heads, used = 2, -(-n // size)
    k, v = (torch.randn(n, kv_heads, dim, device=where) for _ in range(2))
    q = torch.randn(n, kv_heads * group, dim, device=where)
    shape = (kv_heads, size, dim) if scale.on_gpu else (kv_heads, dim, size)
    k_cache = torch.full((2 * used, *shape), torch.nan, device=where).half()
    v_cache = torch.full((2 * used, kv_heads, size, dim), torch.nan, device=where).half()
    table = torch.randperm(2 * used, dtype=torch.int32)
    place = torch.arange(n)
    slots = table[place // size] * size + (place % size).int()
    ops.write_kv(k, v, k_cache, v_cache, slots.to(where))
    # The first block moves, and its old place becomes NaN.
    first, free = int(table[0]), int(table[used])
    ops.copy_blocks(k_cache, v_cache, [(first, free)])
    k_cache[first], v_cache[first], table[0] = torch.nan, torch.nan, free
    tables = table[None, :used].contiguous().to(where)
    got: Any = ops.paged_attention(q, k_cache, v_cache, tables, [n], [n], scale=dim**-0.5)
    attend = torch.nn.functional.scaled_dot_product_attention
    whole = [x.transpose(0, 1)[None] for x in (q, k, v)]
    wanted = attend(whole[0], whole[1], whole[2], is_causal=True, enable_gqa=True)[0].transpose(0, 1)
    # A CPU may multiply a cache of 16 bits in bf16.
    _compare("write_kv, copy_blocks, paged_attention", got, wanted, HALF if scale.on_gpu else 5 * HALF)
    last: Any = ops.paged_attention(q[-1:].contiguous(), k_cache, v_cache, tables, [n], scale=dim**-0.5)
    check("a decode has the bits of the prefill", torch.equal(last[0], got[-1]))


def _order(scale: Scale, where: str) -> None:
    """What torch writes before a call is read, what it writes behind it is not."""
    x = torch.zeros(64, scale.hidden, device=where)
    outs: list[Any] = []
    for i in range(200):
        x.fill_(i + 1.0)
        outs.append(ops.silu_and_mul(x))
        x.fill_(torch.nan)
    value = torch.arange(1.0, 201.0, device=where)
    error = float(
        (torch.stack(outs).amax((1, 2)) / (torch.nn.functional.silu(value) * value) - 1).abs().max()
    )
    check("200 calls in the stream's order", error <= FLOAT32, error, FLOAT32)
