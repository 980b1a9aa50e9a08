from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from served import BLOCK, BLOCKS, Served, octavo_serve


@pytest.fixture(scope="session")
def served() -> Iterator[Served]:
    """The default model with a small window and a small pool, for every test that needs a real one."""
    with octavo_serve(
        *("--max-model-len", "1024", "--threads", "1", "--max-num-seqs", "16"),
        *("--kv-cache-memory", str(BLOCKS * BLOCK * 23040)),
    ) as server:
        yield server


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Iterator[Served]:
    """A model of noise that answers at once."""
    flags = ("--max-model-len", "512", "--threads", "1", "--log-level", "error")
    with octavo_serve(str(tiny_folder), *flags) as server:
        yield server
