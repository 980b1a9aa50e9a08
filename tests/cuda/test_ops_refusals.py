"""What octavo.ops refuses on a GPU, and how it says so."""

from __future__ import annotations

import gc
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from device_array import DeviceArray, synchronize

from octavo import _engine, ops
from octavo.errors import InvalidArgumentError, ModelError

pytestmark = pytest.mark.usefixtures("strict")
HALF = torch.float16


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> DeviceArray:
    return DeviceArray.of(torch.ones(*shape, dtype=dtype))


def strided() -> DeviceArray:
    array = ones(3, 8)
    array.strides = (16, 2)
    return array


def attention(gpu: ops.Context, **changed: Any) -> Any:
    """A call that is right but for what is changed."""
    arguments: dict[str, Any] = {
        "q": ones(2, 4, 32),
        "k_cache": ones(6, 2, 16, 32, dtype=HALF),
        "v_cache": ones(6, 2, 16, 32, dtype=HALF),
        "block_tables": torch.zeros(2, 2, dtype=torch.int32),
        "seq_lens": [20, 3],
    }
    return ops.paged_attention(**(arguments | changed), scale=0.2, context=gpu)


def elsewhere(device: str, wanted: str = "cuda:0") -> str:
    return f'is on device "{device}", must be on "{wanted}"'


def test_what_does_not_fit_is_named(gpu: ops.Context) -> None:
    x, weight, cache = ones(3, 8), ones(8), ones(2, 1, 16, 32, dtype=HALF)
    other = DeviceArray((3, 4), ordinal=1)
    far_table = torch.tensor([[0, 0], [6, 0]], dtype=torch.int32)
    one_block, places = ones(2, 1, dtype=torch.int32), ones(2, dtype=torch.int32)
    q, long_places, table = ones(1, 1, 8), ones(1, dtype=torch.int64), ones(4, 8)
    odd_blocks = ones(6, 2, 20, 32, dtype=HALF)
    cases: list[tuple[str, str, Callable[[], object]]] = [
        ("x", elsewhere("cpu"), lambda: ops.rms_norm(torch.ones(3, 8), weight, 0.0, context=gpu)),
        ("x", elsewhere("cpu"), lambda: ops.silu_and_mul(np.ones((3, 8), np.float32), context=gpu)),
        ("weight", elsewhere("cpu"), lambda: ops.rms_norm(x, torch.ones(8), 0.0, context=gpu)),
        ("out", elsewhere("cuda:1"), lambda: ops.silu_and_mul(x, other, context=gpu)),
        ("k_cache", elsewhere("cpu"), lambda: attention(gpu, k_cache=torch.ones(6, 2, 16, 32).half())),
        ("k_cache", "float32, must be float16 or bfloat16", lambda: attention(gpu, k_cache=ones(6, 2, 16, 32))),
        ("k_cache", r"block_size, k_dim\] on \"cuda:0\"", lambda: attention(gpu, k_cache=odd_blocks)),
        ("seq_lens", elsewhere("cuda:0", "cpu"), lambda: attention(gpu, seq_lens=places)),
        ("block_tables", "has 1 dimensions, must have 2", lambda: attention(gpu, block_tables=places)),
        ("block_tables", "has 1 blocks per sequence", lambda: attention(gpu, block_tables=one_block)),
        ("block_tables", r"\[1, 0\] is 6, the cache has 6", lambda: attention(gpu, block_tables=far_table)),
        ("positions", "int64, must be int32", lambda: ops.rope(q, q, long_places, table, context=gpu)),
        ("x", "is not contiguous", lambda: ops.silu_and_mul(strided(), context=gpu)),
        ("x", "is float16, must be float32", lambda: ops.silu_and_mul(ones(3, 8, dtype=HALF), context=gpu)),
        ("x", "a tensor on cuda:0 that offers DLPack", lambda: ops.silu_and_mul([1.0], x, context=gpu)),  # type: ignore[arg-type]
        ("copies", r"copies\[0\] copies 17 slots", lambda: ops.copy_blocks(cache, cache, [(0, 1, 17)], context=gpu)),
    ]  # fmt: skip
    for name, told, call in cases:
        with pytest.raises(InvalidArgumentError, match=told) as caught:
            call()
        assert caught.value.param == name, caught.value
        assert str(caught.value).startswith(name)


def test_the_cpu_takes_nothing_of_a_gpu() -> None:
    with pytest.raises(InvalidArgumentError, match="x " + elsewhere("cuda:0", "cpu")):
        ops.silu_and_mul(ones(3, 8), context=ops.Context(1))


def test_an_array_that_makes_no_others_needs_out(gpu: ops.Context, caller: int) -> None:
    class Bare:
        """DLPack and a shape."""

        def __init__(self, inner: DeviceArray) -> None:
            self.shape = inner.shape
            self.__dlpack_device__ = inner.__dlpack_device__
            self._inner = inner

        def __dlpack__(self, *, stream: int | None = None) -> object:
            return self._inner.__dlpack__(stream=stream)

    x, out = Bare(ones(3, 8)), DeviceArray((3, 4))
    with pytest.raises(InvalidArgumentError, match="out must be given beside a Bare"):
        ops.silu_and_mul(x, context=gpu)  # type: ignore[arg-type]
    ops.silu_and_mul(x, out, context=gpu)  # type: ignore[arg-type]
    synchronize(caller)
    assert not out.host.isnan().any()


@pytest.mark.skipif(bool(_engine.backends()["cuda"]["devices"]), reason="this machine has a GPU")
def test_a_backend_that_is_not_there_is_asked_for_at_the_first_call() -> None:
    why = _engine.backends()["cuda"]["why_not"]
    with pytest.raises(ModelError) as caught:
        ops.silu_and_mul(ones(3, 8))
    assert (str(caught.value), caught.value.code, caught.value.param) == (why, "unsupported", "device")


def test_a_context_tells_its_device(gpu: ops.Context) -> None:
    assert (gpu.device, gpu.isa, gpu.threads) == ("cuda:0", "sm_90", 1)
    assert ops.Context(1).device == "cpu"


def test_a_weight_belongs_to_the_context_that_packed_it(gpu: ops.Context) -> None:
    weight, x = torch.randn(16, 32), ones(3, 32)
    for packed, told in [
        (ops.pack_linear(weight), "belongs to the CPU"),
        (ops.pack_linear(weight, context=ops.Context(device="cuda-emulated")), "another context"),
    ]:
        with pytest.raises(InvalidArgumentError, match=told) as caught:
            ops.linear(x, packed, context=gpu)
        assert caught.value.param == "packed"
    with pytest.raises(InvalidArgumentError, match="another context on a GPU"):
        ops.linear(x.host, ops.pack_linear(weight, context=gpu), context=ops.Context(1))


def test_a_weight_keeps_its_context() -> None:
    weight = torch.randn(16, 32)
    packed = ops.pack_linear(weight, context=ops.Context(device="cuda-emulated"))
    gc.collect()
    np.testing.assert_array_equal(packed.dequantize(), weight.numpy())
