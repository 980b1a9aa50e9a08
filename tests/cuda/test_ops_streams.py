"""Where the work of octavo.ops goes on a GPU, and what its kernels are given."""

from __future__ import annotations

import contextlib
import types
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from ctypes import c_size_t, c_void_p

import numpy as np
import pytest
import torch
from device_array import DeviceArray, emulator, given, stream, synchronize

from octavo import ops
from octavo.errors import OctavoError

pytestmark = pytest.mark.usefixtures("strict")


def ones(*shape: int, dtype: torch.dtype = torch.float32) -> DeviceArray:
    return DeviceArray.of(torch.ones(*shape, dtype=dtype))


def fill(array: DeviceArray, byte: int, handle: int) -> None:
    """Sets every byte of the array, in the stream."""
    to, size = c_void_p(array.address), c_size_t(array.host.nbytes)
    assert emulator().trial_fill(to, byte, size, c_void_p(handle)) == 0


def test_the_device_sees_a_pointer_to_the_hosts_memory() -> None:
    array, host = ones(4), np.ones(4)
    invalid_value = 1
    library = emulator()
    assert library.trial_pass(c_void_p(host.ctypes.data)) == invalid_value
    assert library.trial_pass(c_void_p(array.address)) == 0
    assert library.trial_pass(None) == 0
    holder = np.array([host.ctypes.data], np.uint64)
    size, default = c_size_t(8), None
    assert (
        library.trial_copy(c_void_p(array.address), c_void_p(holder.ctypes.data), size, default)
        == invalid_value
    )
    library.octavo_emulator_set_strict(0)
    assert library.trial_pass(c_void_p(host.ctypes.data)) == 0


def test_a_call_returns_before_its_work_is_done(gpu: ops.Context, caller: int) -> None:
    x, weight = ones(3, 8), ones(8)  # memory that is given back waits for all work
    out = ops.rms_norm(x, weight, 0.0, context=gpu)
    assert out.host.isnan().all()
    synchronize(caller)
    assert torch.equal(out.host, torch.ones(3, 8))
    assert x.told == [caller]


def test_work_is_in_order_with_what_the_caller_enqueues(gpu: ops.Context, caller: int) -> None:
    """The input is made before the call and overwritten behind it, all in the stream."""
    x, out = ones(2, 8), DeviceArray((2, 4))
    fill(x, 0, caller)
    ops.silu_and_mul(x, out, context=gpu)
    fill(x, 0xFF, caller)
    after = ops.silu_and_mul(x, context=gpu)
    synchronize(caller)
    assert torch.equal(out.host, torch.zeros(2, 4))
    assert x.host.isnan().all()
    assert after.host.isnan().all()


def test_calls_ahead_of_the_device_keep_their_own_indices(gpu: ops.Context, caller: int) -> None:
    """Staging memory is taken again only once its copy is done."""
    table = DeviceArray.of(torch.from_numpy(ops.rope_table(40, 8)))
    given_q = [torch.randn(1, 1, 8) for _ in range(40)]
    there = [(DeviceArray.of(q), ones(1, 1, 8)) for q in given_q]
    for position, (q, k) in enumerate(there):
        ops.rope(q, k, [position], table, context=gpu)
    synchronize(caller)
    for position, (q, _) in enumerate(there):
        cos, sin = table.host[position].double().chunk(2)
        a, b = given_q[position][0, 0].double().chunk(2)
        expected = torch.cat([a * cos - b * sin, b * cos + a * sin])
        assert (q.host[0, 0].double() - expected).abs().max() < 1e-5


def test_streams_that_take_turns_share_the_workspace_in_order() -> None:
    weight = torch.randn(40, 64)
    xs = [DeviceArray.of(torch.randn(6, 64)) for _ in range(6)]
    with stream() as one, stream() as other:
        context = ops.Context(device="cuda-emulated", stream=one)
        packed = ops.pack_linear(weight, context=context)
        outs = []
        for i, x in enumerate(xs):
            context._stream = (one, other)[i % 2]
            outs.append(ops.linear(x, packed, context=context))
        assert all(out.host.isnan().all() for out in outs[1:])
        synchronize(other)  # its last call is behind all others
        for x, out in zip(xs, outs, strict=True):
            torch.testing.assert_close(out.host, x.host @ weight.T, rtol=1e-5, atol=1e-4)


def test_threads_take_turns_on_a_context(gpu: ops.Context, caller: int) -> None:
    xs = [torch.randn(4, 16) for _ in range(24)]
    weight = ones(16)
    with ThreadPoolExecutor(4) as pool:
        outs = list(pool.map(lambda x: ops.rms_norm(DeviceArray.of(x), weight, 1e-5, context=gpu), xs))
    synchronize(caller)
    for x, out in zip(xs, outs, strict=True):
        torch.testing.assert_close(out.host, torch.nn.functional.rms_norm(x, (16,), eps=1e-5))


def test_torchs_current_stream_is_the_callers(monkeypatch: pytest.MonkeyPatch) -> None:
    chosen: list[str] = []

    @contextlib.contextmanager
    def device(name: str) -> Iterator[None]:
        chosen.append(name)
        yield

    with stream() as handle:
        context, x = ops.Context(device="cuda-emulated"), ones(2, 8)
        default_stream = 1  # as DLPack numbers it
        ops.rms_norm(x, ones(8), 0.0, context=context)
        assert x.told == [default_stream]
        monkeypatch.setattr(torch.cuda, "is_initialized", lambda: True)
        monkeypatch.setattr(torch.cuda, "device", device)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda: types.SimpleNamespace(cuda_stream=handle))
        out = ops.rms_norm(x, ones(8), 0.0, context=context)
        assert x.told == [default_stream, handle]
        assert chosen == ["cuda:0"]
        synchronize(handle)
        assert torch.equal(out.host, torch.ones(2, 8))


def test_a_call_on_another_gpu_leaves_the_threads_own_as_it_is() -> None:
    emulator().octavo_emulator_set_devices(2)
    context = ops.Context(device="cuda-emulated:1")
    assert context.device == "cuda:1"
    assert emulator().trial_set_device(1) == 0
    with stream() as handle:
        context._stream = handle
        assert emulator().trial_set_device(0) == 0
        weight, x = torch.randn(16, 32), DeviceArray.of(torch.randn(3, 32))
        x.ordinal = 1
        packed = ops.pack_linear(weight, context=context)
        out = ops.linear(x, packed, context=context)
        np.testing.assert_array_equal(packed.dequantize(), weight.numpy())
        assert emulator().trial_device() == 0
        synchronize(handle)
        torch.testing.assert_close(out.host, x.host @ weight.T, rtol=1e-5, atol=1e-4)


def test_a_stream_that_is_recorded_is_refused(gpu: ops.Context, caller: int) -> None:
    x, weight, out = ones(2, 8), ones(8), DeviceArray((2, 8))
    assert emulator().trial_begin_capture(c_void_p(caller)) == 0
    try:
        with pytest.raises(OctavoError, match="recorded as a graph") as caught:
            ops.rms_norm(x, weight, 0.0, out, context=gpu)
    finally:
        assert emulator().trial_end_capture(c_void_p(caller)) == 0
    assert (caught.value.code, caught.value.param) == ("unsupported", "stream")
    ops.rms_norm(x, weight, 0.0, out, context=gpu)
    synchronize(caller)
    assert torch.equal(out.host, torch.ones(2, 8))


def test_nothing_is_kept_of_what_was_given(gpu: ops.Context, caller: int) -> None:
    before = given()
    x, weight = ones(2, 8), ones(8)
    for _ in range(3):
        ops.rms_norm(x, weight, 0.0, context=gpu)
    synchronize(caller)
    assert given() == before
