"""octavo.ops on arrays of the emulated GPU, taken by DLPack: every function against torch."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from device_array import DeviceArray, synchronize
from paged_cache import Sequences, ints

from octavo import ops

pytestmark = pytest.mark.usefixtures("strict")
FLOAT32 = 2e-6  # of the largest value
CACHE_TYPES = {"f16": torch.float16, "bf16": torch.bfloat16}


def normal(*shape: int, seed: int = 0) -> torch.Tensor:
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def put(x: torch.Tensor) -> DeviceArray:
    return DeviceArray.of(x)


def result(array: Any, caller: int) -> torch.Tensor:
    """What the array holds once the caller's stream, and no other, has done its work."""
    synchronize(caller)
    return array.host.double()


def assert_close(actual: torch.Tensor, expected: torch.Tensor, relative: float = FLOAT32) -> None:
    assert actual.shape == expected.shape
    worst, largest = (actual - expected).abs().max(), expected.abs().max()
    assert worst <= relative * largest, f"off by {worst} of {largest}"  # no NaN either


@pytest.mark.parametrize("shape", [(5, 1), (5, 33), (2, 3, 576), (5, 2051), (7,), (0, 8)])
def test_rms_norm(gpu: ops.Context, caller: int, shape: tuple[int, ...]) -> None:
    x, weight = normal(*shape), normal(shape[-1], seed=1)
    out = ops.rms_norm(put(x), put(weight), 1e-5, context=gpu)
    expected = torch.nn.functional.rms_norm(x.double(), shape[-1:], weight.double(), 1e-5)
    if x.numel():
        assert_close(result(out, caller), expected)
    into = put(x)
    assert ops.rms_norm(into, put(weight), 1e-5, into, context=gpu) is into
    if x.numel():
        assert_close(result(into, caller), expected)


def test_a_rows_bits_do_not_depend_on_the_others(gpu: ops.Context, caller: int) -> None:
    x, weight = normal(7, 300), put(normal(300, seed=1))
    whole = result(ops.rms_norm(put(x), weight, 1e-5, context=gpu), caller)
    alone = result(ops.rms_norm(put(x[4:5]), weight, 1e-5, context=gpu), caller)
    assert torch.equal(whole[4:5], alone)


@pytest.mark.parametrize("shape", [(5, 2), (5, 66), (2, 3, 128), (5, 600)])
def test_silu_and_mul(gpu: ops.Context, caller: int, shape: tuple[int, ...]) -> None:
    x = 3 * normal(*shape)
    x.view(-1)[0], x.view(-1)[shape[-1]] = -1e30, 1e30
    gate, up = x.double().chunk(2, -1)
    out = ops.silu_and_mul(put(x), context=gpu)
    assert_close(result(out, caller), torch.nn.functional.silu(gate) * up)


@pytest.mark.parametrize("on_gpu", [False, True], ids=["positions of the host", "positions on the GPU"])
@pytest.mark.parametrize(("dim", "rotary"), [(64, 64), (96, 48)])
def test_rope(gpu: ops.Context, caller: int, dim: int, rotary: int, on_gpu: bool) -> None:
    q, k = normal(4, 6, dim), normal(4, 2, dim, seed=1)
    positions, table = [9, 0, 3, 3], torch.from_numpy(ops.rope_table(10, rotary))
    device_q, device_k = put(q), put(k)
    ops.rope(device_q, device_k, put(ints(positions)) if on_gpu else positions, put(table), context=gpu)
    cos, sin = table[positions].double()[:, None].chunk(2, -1)

    def rotated(x: torch.Tensor) -> torch.Tensor:
        a, b, rest = x.double().split([rotary // 2, rotary // 2, dim - rotary], -1)
        return torch.cat([a * cos - b * sin, b * cos + a * sin, rest], -1)

    assert_close(result(device_q, caller), rotated(q))
    assert_close(result(device_k, caller), rotated(k))


@pytest.mark.parametrize("on_gpu", [False, True], ids=["slots of the host", "slots on the GPU"])
@pytest.mark.parametrize("dtype", CACHE_TYPES.values(), ids=CACHE_TYPES)
def test_write_kv(gpu: ops.Context, caller: int, dtype: torch.dtype, on_gpu: bool) -> None:
    k, v = normal(4, 2, 64), normal(4, 2, 32, seed=1)
    k_cache, v_cache = torch.zeros(3, 2, 8, 64, dtype=dtype), torch.zeros(3, 2, 8, 32, dtype=dtype)
    slots = [17, -1, 0, 8]
    there = put(k_cache), put(v_cache)
    ops.write_kv(put(k), put(v), *there, put(ints(slots)) if on_gpu else slots, context=gpu)
    for token, slot in enumerate(slots):
        if slot >= 0:
            k_cache[slot // 8, :, slot % 8] = k[token].to(dtype)
            v_cache[slot // 8, :, slot % 8] = v[token].to(dtype)
    synchronize(caller)
    assert torch.equal(there[0].host, k_cache)
    assert torch.equal(there[1].host, v_cache)


@pytest.mark.parametrize("dtype", CACHE_TYPES.values(), ids=CACHE_TYPES)
def test_copy_blocks(gpu: ops.Context, caller: int, dtype: torch.dtype) -> None:
    k_cache, v_cache = normal(6, 2, 16, 64).to(dtype), normal(6, 2, 16, 32, seed=1).to(dtype)
    there = put(k_cache), put(v_cache)
    ops.copy_blocks(*there, [(0, 3), (1, 4, 5), (3, 5)], context=gpu)
    for cache in (k_cache, v_cache):
        cache[3], cache[5] = cache[0], cache[0]
        cache[4, :, :5] = cache[1, :, :5]
    synchronize(caller)
    assert torch.equal(there[0].host, k_cache)
    assert torch.equal(there[1].host, v_cache)


def attend(gpu: ops.Context, batch: Sequences, rows: list[tuple[int, int, int]], on_gpu: bool,
           sinks: torch.Tensor | None = None, **options: Any) -> DeviceArray:  # fmt: skip
    """Queries [start, end) of each (sequence, start, end)."""
    cache, dtype = batch.cache, CACHE_TYPES[batch.cache.dtype]
    tables = batch.tables[[s for s, _, _ in rows]].contiguous()
    out = ops.paged_attention(
        put(torch.cat([batch.q[s][start:end] for s, start, end in rows])),
        put(cache.k.view(dtype).view(cache.num_blocks, cache.kv_heads, cache.block_size, cache.k_dim)),
        put(cache.v.view(dtype).view(cache.num_blocks, cache.kv_heads, cache.block_size, cache.v_dim)),
        put(tables) if on_gpu else tables,
        [end for _, _, end in rows],
        torch.tensor([end - start for _, start, end in rows]),
        scale=cache.k_dim**-0.5,
        sinks=None if sinks is None else put(sinks),
        context=gpu,
        **options,
    )
    assert isinstance(out, DeviceArray)
    return out


@pytest.mark.parametrize("on_gpu", [False, True], ids=["tables of the host", "tables on the GPU"])
@pytest.mark.parametrize(
    ("dtype", "options"),
    [
        ("f16", {}),
        ("bf16", {}),
        ("f16", {"window": 40}),
        ("f16", {"softcap": 5.0, "sinks": torch.linspace(-5, 9, 6)}),
    ],
    ids=["f16", "bf16", "window", "softcap and sinks"],
)
def test_paged_attention(
    gpu: ops.Context, caller: int, dtype: str, options: dict[str, Any], on_gpu: bool
) -> None:
    batch = Sequences([150, 3, 40], 6, (dtype, 16, 2, 64, 80))
    rows = [(0, 149, 150), (1, 0, 3), (2, 20, 40)]
    got = result(attend(gpu, batch, rows, on_gpu, **options), caller)
    for row, out in zip(rows, got.split([end - start for _, start, end in rows]), strict=True):
        tolerance = {"f16": 2**-10, "bf16": 2**-7}[dtype] * batch.v[row[0]].abs().max()
        assert (out - batch.reference(row, **options)).abs().max() <= tolerance


@pytest.mark.parametrize("on_gpu", [False, True], ids=["tables of the host", "tables on the GPU"])
def test_a_shared_prefix_is_read_once_and_changes_no_bit(gpu: ops.Context, caller: int, on_gpu: bool) -> None:
    batch = Sequences([300, 290, 260], 4, ("f16", 16, 2, 64, 64), shared=256)
    rows = [(0, 299, 300), (1, 280, 290), (2, 259, 260)]
    alone = result(attend(gpu, batch, rows, on_gpu), caller)
    shared = result(attend(gpu, batch, rows, on_gpu, prefix_groups=[([0, 1, 2], 2)]), caller)
    assert torch.equal(alone, shared)
    for row, out in zip(rows, alone.split([1, 10, 1]), strict=True):
        assert (out - batch.reference(row)).abs().max() <= 2**-10 * batch.v[row[0]].abs().max()


@pytest.mark.parametrize("from_gpu", [False, True], ids=["weight of the host", "weight on the GPU"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_linear(gpu: ops.Context, caller: int, dtype: torch.dtype, from_gpu: bool) -> None:
    weight, bias, x = normal(70, 96, seed=1).to(dtype), normal(70, seed=2), normal(2, 5, 96)
    packed = ops.pack_linear(put(weight) if from_gpu else weight, context=gpu)
    assert (packed.n, packed.k) == (70, 96)
    np.testing.assert_array_equal(packed.dequantize(), weight.float().numpy())
    expected = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    magnitude = x.double().abs() @ weight.double().abs().T
    rounding = {torch.float32: 2**-20, torch.float16: 2**-11, torch.bfloat16: 2**-8}[dtype]
    out = ops.linear(put(x), packed, put(bias), context=gpu)
    assert ((result(out, caller) - expected).abs() <= rounding * magnitude + 1e-5).all()
    plain, into = ops.linear(put(x), packed, context=gpu), DeviceArray((2, 5, 70))
    assert ops.linear(put(x), packed, out=into, context=gpu) is into
    synchronize(caller)
    assert torch.equal(plain.host, into.host)
    assert ((plain.host.double() - (expected - bias)).abs() <= rounding * magnitude + 1e-5).all()


@pytest.mark.parametrize("kind", ["Q8_0", "Q4_1"])
def test_linear_of_gguf_blocks(gpu: ops.Context, caller: int, kind: str) -> None:
    gguf = pytest.importorskip("gguf")
    blocks = gguf.quants.quantize(normal(48, 64, seed=1).numpy(), gguf.GGMLQuantizationType[kind])
    values = torch.from_numpy(gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType[kind])).double()
    x = normal(3, 64)
    packed = ops.pack_linear(put(torch.from_numpy(blocks)), kind.lower(), context=gpu)
    assert torch.equal(torch.from_numpy(packed.dequantize()).double(), values)
    out = result(ops.linear(put(x), packed, context=gpu), caller)
    assert ((out - x.double() @ values.T).abs() <= 2**-11 * (x.double().abs() @ values.abs().T) + 1e-5).all()
