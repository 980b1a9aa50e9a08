"""What is wrong with a GPU is said when it is asked for, with what to do about it."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

import numpy as np
import pytest
from emulator_library import load

from octavo import _engine
from octavo.errors import EngineDeadError, InvalidArgumentError, ModelError, OctavoError

MALLOC, LAUNCH, SYNC, COPY, DEVICE = range(5)  # kinds of calls that the emulator lets fail


@pytest.fixture
def emulator() -> Iterator[ctypes.CDLL]:
    library = load("octavo_cuda_emulated")
    library.octavo_emulator_reset()
    yield library
    library.octavo_emulator_reset()


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (
            35,
            r"the NVIDIA driver is for CUDA \d+\.\d+, this build of octavo needs \d+\.\d+: update the driver",
        ),
        (100, "finds no GPU"),
        (999, "cannot be used: cudaErrorUnknown"),
    ],
)
def test_why_there_is_no_gpu(emulator: ctypes.CDLL, error: int, told: str) -> None:
    emulator.octavo_emulator_fail(DEVICE, 0, error)
    with pytest.raises(ModelError, match=told) as caught:
        _engine.BackendOps(device="cuda-emulated")
    assert (caught.value.code, caught.value.param) == ("unsupported", "device")


def test_a_device_that_is_not_there(emulator: ctypes.CDLL) -> None:
    assert _engine.BackendOps(device="cuda-emulated:0").device == "cuda-emulated"
    with pytest.raises(ModelError, match="there is no GPU 7: the driver finds 1"):
        _engine.BackendOps(device="cuda-emulated:7")
    for device in ("tpu", "cuda:", "cuda:x", "cuda-emulated:-1"):
        with pytest.raises(InvalidArgumentError, match=f"got {device}"):
            _engine.BackendOps(device=device)


def gather_a_row(ops: _engine.BackendOps) -> None:
    """An op that moves a list to the device before it is launched."""
    _engine.gather_rows(ops, np.zeros((4, 8), np.float32), [2], np.zeros((1, 8), np.float32))


def test_memory_that_is_not_there(emulator: ctypes.CDLL) -> None:
    ops = _engine.BackendOps(device="cuda-emulated")
    emulator.octavo_emulator_set_memory(ctypes.c_size_t(16))
    with pytest.raises(OctavoError, match=r"the GPU has \d+ of 16 bytes free, 4096 are needed") as caught:
        gather_a_row(ops)
    assert (caught.value.code, caught.value.param) == ("out_of_memory", "memory")


@pytest.mark.parametrize("call", [SYNC, COPY])
def test_errors_that_end_a_context_say_so(emulator: ctypes.CDLL, call: int) -> None:
    ops = _engine.BackendOps(device="cuda-emulated")
    emulator.octavo_emulator_fail(call, 0, 700)
    with pytest.raises(EngineDeadError, match="cudaErrorIllegalAddress") as caught:
        gather_a_row(ops)
    assert caught.value.code == "device_lost"


def test_the_report_tells_devices_or_the_reason() -> None:
    report = _engine.backends()["cuda"]
    assert bool(report["devices"]) != bool(report["why_not"])
