"""Norm, activation, rotation, cache writes and block copies against torch."""

from __future__ import annotations

import pytest
import torch

from octavo import ops

ISAS = ["baseline", "avx2"]


@pytest.fixture(params=ISAS)
def context(request: pytest.FixtureRequest) -> ops.Context:
    if request.param == "avx2" and ops.Context().isa == "baseline":
        pytest.skip("this machine has no AVX2")
    return ops.Context(2, request.param)


@pytest.mark.parametrize("dim", [1, 7, 8, 31, 64, 100, 576, 1536])
def test_rms_norm(context: ops.Context, dim: int) -> None:
    x, weight = torch.randn(5, 3, dim) * 3, torch.randn(dim)
    want = torch.nn.functional.rms_norm(x.double(), (dim,), weight.double(), 1e-5)
    got = ops.rms_norm(x, weight, 1e-5, context=context)
    torch.testing.assert_close(got.double(), want, rtol=2e-6, atol=1e-7)
    for i in range(5):
        assert torch.equal(ops.rms_norm(x[i], weight, 1e-5, context=ops.Context(1, context.isa)), got[i])
    assert ops.rms_norm(x, weight, 1e-5, out=x, context=context) is x
    assert torch.equal(x, got)


@pytest.mark.parametrize("dim", [1, 8, 13, 1536])
def test_silu_and_mul(context: ops.Context, dim: int) -> None:
    x = torch.randn(6, 2 * dim) * 6
    x[0, 0], x[1, 0], x[2, 0] = 200.0, -200.0, 0.0
    gate, up = x.double().chunk(2, -1)
    got = ops.silu_and_mul(x, context=context)
    torch.testing.assert_close(got.double(), torch.nn.functional.silu(gate) * up, rtol=1e-6, atol=1e-8)


def test_silu_keeps_nan(context: ops.Context) -> None:
    x = torch.full((1, 32), torch.nan)
    assert ops.silu_and_mul(x, context=context).isnan().all()


@pytest.mark.parametrize(("dim", "rotary"), [(64, 64), (32, 32), (80, 20), (128, 64), (12, 12)])
def test_rope(context: ops.Context, dim: int, rotary: int) -> None:
    q, k = torch.randn(37, 6, dim), torch.randn(37, 2, dim)
    positions = torch.randint(0, 500, (37,), dtype=torch.int32)
    table = torch.from_numpy(ops.rope_table(500, rotary, 10000.0))
    inv_freq = 10000.0 ** -(torch.arange(0, rotary, 2).double() / rotary)
    angle = positions.double()[:, None] * inv_freq
    cos, sin = (torch.cat([f(angle)] * 2, -1)[:, None] for f in (torch.cos, torch.sin))

    def rotated(x: torch.Tensor) -> torch.Tensor:
        part, rest = x.double()[..., :rotary], x.double()[..., rotary:]
        first, second = part.chunk(2, -1)
        return torch.cat([part * cos + torch.cat([-second, first], -1) * sin, rest], -1)

    want_q, want_k = rotated(q), rotated(k)
    ops.rope(q, k, positions, table, context=context)
    torch.testing.assert_close(q.double(), want_q, rtol=1e-6, atol=1e-6)
    torch.testing.assert_close(k.double(), want_k, rtol=1e-6, atol=1e-6)


def scattered(
    cache_dtype: torch.dtype, k_dim: int, v_dim: int, block_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    k_cache = torch.zeros(5, 3, k_dim, block_size, dtype=cache_dtype)
    v_cache = torch.zeros(5, 3, block_size, v_dim, dtype=cache_dtype)
    return k_cache, v_cache


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("k_dim", "v_dim", "block_size"), [(64, 64, 16), (40, 24, 8), (13, 5, 32)])
def test_write_kv(context: ops.Context, dtype: torch.dtype, k_dim: int, v_dim: int, block_size: int) -> None:
    k_cache, v_cache = scattered(dtype, k_dim, v_dim, block_size)
    n = 3 * block_size
    k, v = torch.randn(n, 3, k_dim), torch.randn(n, 3, v_dim)
    slots = torch.randperm(5 * block_size)[:n]
    slots[4] = -1
    want_k, want_v = k_cache.clone(), v_cache.clone()
    for t, slot in enumerate(slots.tolist()):
        if slot >= 0:
            want_k[slot // block_size, :, :, slot % block_size] = k[t].to(dtype)
            want_v[slot // block_size, :, slot % block_size] = v[t].to(dtype)
    ops.write_kv(k, v, k_cache, v_cache, slots, context=context)
    assert torch.equal(k_cache, want_k)
    assert torch.equal(v_cache, want_v)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_cache_writes_round_to_nearest_even(context: ops.Context, dtype: torch.dtype) -> None:
    bits = torch.randint(-(2**31), 2**31, (16, 3, 4096), dtype=torch.int64).to(torch.int32)
    x = bits.view(torch.float32).clone()
    halves = torch.arange(-(2**15), 2**15).to(torch.int16)[: 4096 * 3].view(dtype).float()
    ulp = (halves.view(torch.int32) + 0x1000).view(torch.float32)  # a tie in float16
    x[0], x[1] = halves.view(3, 4096), ulp.view(3, 4096)
    x[2] = (
        ((halves.view(torch.int32) & -65536) + 0x8000).view(torch.float32).view(3, 4096)
    )  # a tie in bfloat16
    k_cache, v_cache = scattered(dtype, 4096, 4096, 16)
    ops.write_kv(x, x, k_cache, v_cache, list(range(16)), context=context)
    torch.testing.assert_close(v_cache[0].transpose(0, 1), x.to(dtype), rtol=0, atol=0, equal_nan=True)
    torch.testing.assert_close(k_cache[0].movedim(2, 0), x.to(dtype), rtol=0, atol=0, equal_nan=True)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16])
def test_copy_blocks(context: ops.Context, dtype: torch.dtype) -> None:
    k_cache, v_cache = scattered(dtype, 24, 40, 16)
    k_cache.copy_(torch.randn(k_cache.shape))
    v_cache.copy_(torch.randn(v_cache.shape))
    want_k, want_v = k_cache.clone(), v_cache.clone()
    copies = [(0, 3), (3, 4, 5), (1, 1), (2, 0, 0), (1, 2, 16)]
    for src, dst, *rest in copies:
        n = rest[0] if rest else 16
        want_k[dst, :, :, :n] = want_k[src, :, :, :n].clone()
        want_v[dst, :, :n] = want_v[src, :, :n].clone()
    ops.copy_blocks(k_cache, v_cache, copies, context=context)
    assert torch.equal(k_cache, want_k)
    assert torch.equal(v_cache, want_v)
