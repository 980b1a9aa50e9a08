from __future__ import annotations

import ctypes
from collections.abc import Iterator

import pytest
from device_array import stream
from emulator_library import load

from octavo import _engine, ops


@pytest.fixture(scope="session")
def emulated() -> _engine.BackendOps:
    """The ops of the CUDA backend on the emulator."""
    load("octavo_cuda_emulated")
    return _engine.BackendOps(1, "", "cuda-emulated")


@pytest.fixture
def strict() -> Iterator[None]:
    """A device that takes no pointer to the host's memory, and a host that overwrites what it frees.

    Work waits in its stream until something waits for it, so what a kernel read of a call's own variables would be
    garbage.
    """
    library, libc = load("octavo_cuda_emulated"), ctypes.CDLL(None)
    perturb = -6  # M_PERTURB of malloc.h
    library.octavo_emulator_reset()
    library.octavo_emulator_set_strict(1)
    libc.mallopt(perturb, 0xA5)
    yield
    libc.mallopt(perturb, 0)
    library.octavo_emulator_reset()


@pytest.fixture
def caller() -> Iterator[int]:
    """The stream of whoever calls."""
    with stream() as handle:
        yield handle


@pytest.fixture
def gpu(caller: int) -> ops.Context:
    """The emulated GPU behind octavo.ops, in the caller's stream."""
    return ops.Context(device="cuda-emulated", stream=caller)
