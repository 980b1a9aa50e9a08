from __future__ import annotations

import pytest
from emulator_library import load

from octavo import _engine


@pytest.fixture(scope="session")
def emulated() -> _engine.BackendOps:
    """The ops of the CUDA backend on the emulator."""
    load("octavo_cuda_emulated")
    return _engine.BackendOps(1, "", "cuda-emulated")
