"""The comparison with other servers and libraries: Octavo as a library, and the table."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path

import pytest

from octavo_bench.peers.report import text_table
from octavo_bench.peers.rounds import ROWS, Figures, measure
from octavo_bench.peers.worker_peer import WorkerPeer
from octavo_bench.workloads import Shape

OURS = ("octavo", "octavo library")


def figures(peer: str, kind: str, **rows: list[float]) -> Figures:
    made = Figures(peer, kind)
    made.rows |= rows
    return made


@pytest.mark.slow
def test_octavo_runs_as_a_library(smollm2: Path, tmp_path: Path) -> None:
    peer = WorkerPeer(
        OURS[1], sys.executable, "octavo_worker.py", [str(smollm2), "1", ""], tmp_path / "library.log"
    )
    shape = Shape(
        batch=2, prompt=8, output=4, shared_prompt=32, shared_suffix=4, shared_output=2, prefill_batch=2,
        prefill_prompt=40,
    )  # fmt: skip
    (found,) = asyncio.run(measure([peer], rounds=1, shape=shape, vocab=1000, only=[], say=lambda _: None))
    assert found.failure is None
    assert all(len(found.rows[row.key]) == 1 and found.rows[row.key][0] > 0 for row in ROWS)
    assert found.started[0].resident_mb > 100


def test_each_compares_with_its_kind_and_with_all() -> None:
    table = [
        figures("octavo", "server", w1=[200.0, 220.0, 240.0], w2=[600.0]),
        figures("octavo library", "library", w1=[250.0], w2=[700.0]),
        figures("one server", "server", w1=[100.0, 110.0, 300.0]),
        figures("another server", "server", w1=[90.0], w2=[300.0]),
        figures("a library", "library", w1=[100.0]),
    ]
    lines = text_table(table, OURS).splitlines()
    heads = "octavo / best server | octavo / best of all | octavo library / best library"
    assert lines[0].endswith(f"| a library | {heads} | octavo library / best of all |")
    assert lines[2].endswith("| 220 | 250 | 110 | 90 | 100 | 2.00 | 2.00 | 2.50 | 2.27 |")
    assert lines[3].endswith("| 600 | 700 | - | 300 | - | 2.00 | 2.00 | - | 2.33 |")
