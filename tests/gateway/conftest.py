from __future__ import annotations

from collections.abc import Iterator

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
