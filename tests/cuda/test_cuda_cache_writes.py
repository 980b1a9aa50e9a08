"""Norm, rotation, cache writes and block copies on the CUDA backend against torch."""

from __future__ import annotations

import random
from itertools import product

import pytest
import torch
from paged_cache import DTYPES, PagedCache

EPS = 1e-5


def normal(*shape: int, seed: int) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def normed(x: torch.Tensor, weight: torch.Tensor | None, together: bool) -> torch.Tensor:
    if weight is None:
        return x
    dims = (-2, -1) if together else (-1,)
    return x * torch.rsqrt(x.square().mean(dims, keepdim=True) + EPS) * weight.double()


def rotated(x: torch.Tensor, table: torch.Tensor | None) -> torch.Tensor:
    if table is None:
        return x
    half = table.shape[-1] // 2
    cos, sin = (t.double()[:, None] for t in (table[:, :half], table[:, half:]))
    a, b, rest = x[..., :half], x[..., half : 2 * half], x[..., 2 * half :]
    return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)


@pytest.mark.parametrize("norm", ["none", "each head", "heads together"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_rope_write(dtype: str, norm: str) -> None:
    together = norm == "heads together"
    for seed, (heads, kv_heads, k_dim, v_dim, rotary) in enumerate(
        [(6, 2, 64, 64, 64), (3, 3, 96, 80, 48), (5, 1, 256, 128, 256), (2, 1, 20, 12, 0)]
    ):
        cache = PagedCache(dtype, (8, 16, 32)[seed % 3], 3, kv_heads, k_dim, v_dim)
        q, k, v = (
            normal(4, heads, k_dim, seed=1),
            normal(4, kv_heads, k_dim, seed=2),
            normal(4, kv_heads, v_dim, seed=3),
        )
        v[2, 0] = 0.0
        q_norm, k_norm = (
            None if norm == "none" else normal(*([h] if together else []), k_dim, seed=h)
            for h in (heads, kv_heads)
        )
        positions, slots = [5, 0, 7, 2], [9, -1, 2, 17]
        angles = normal(8, rotary // 2, seed=4)
        rope = torch.cat([angles.cos(), angles.sin()], -1) if rotary else None
        table = rope[positions] if rope is not None else None
        want_q, want_k = (
            rotated(normed(x.double(), w, together), table) for x, w in ((q, q_norm), (k, k_norm))
        )
        kept_v = v.clone()
        cache.rope_write(q, k, v, slots, positions, rope, q_norm, k_norm, together, EPS)
        for got, want in ((q, want_q), (k, want_k)):
            torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=2e-6)
        assert torch.equal(v, kept_v)
        # The cache holds exactly what the rows are worth, and is untouched elsewhere.
        want_cache = PagedCache(dtype, cache.block_size, 3, kv_heads, k_dim, v_dim)
        written = [i for i, slot in enumerate(slots) if slot >= 0]
        want_cache.store(torch.tensor([slots[i] for i in written]), k[written], v[written])
        if cache.scaled:  # a head of zeros has the scale 0
            codes, scales = want_cache.parts(want_cache.v, v_dim)
            codes[2 // cache.block_size, 0, 2 % cache.block_size] = 0
            scales[2 // cache.block_size, 0, 2 % cache.block_size] = 0.0
        assert torch.equal(cache.k, want_cache.k)
        assert torch.equal(cache.v, want_cache.v)


@pytest.mark.parametrize("dtype", DTYPES)
def test_copies_happen_in_order(dtype: str) -> None:
    rng = random.Random(2)
    for block_size, (k_dim, v_dim) in product((8, 16, 32), [(64, 80), (20, 12)]):
        cache = PagedCache(dtype, block_size, 6, 2, k_dim, v_dim)
        for half in (cache.k, cache.v):
            half[:] = torch.randint(0, 255, half.shape, dtype=torch.uint8)
        want = [half.clone() for half in (cache.k, cache.v)]
        copies = [(rng.randrange(6), rng.randrange(6), rng.randint(0, block_size)) for _ in range(7)]
        cache.copy_blocks(copies)
        for half, dim in zip(want, (k_dim, v_dim), strict=True):
            for part in cache.parts(half, dim):
                for src, dst, slots in copies if part.numel() else []:
                    part[dst, :, :slots] = part[src, :, :slots].clone()
        assert torch.equal(cache.k, want[0])
        assert torch.equal(cache.v, want[1])
