"""The gateway's cost with a stub engine: what decides how many streams one core can carry."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from octavo.cli.main import main
from octavo.sampling_params import SamplingParams
from octavo_bench.gateway.stub import StubEngine


def test_the_stub_gives_every_stream_its_tokens() -> None:
    async def scenario() -> None:
        engine = StubEngine()
        streams = [
            engine.submit([1, 2, 3], SamplingParams(max_tokens=n), namespace=0, priority=0) for n in (1, 5, 9)
        ]
        streams[2].cancel()
        lengths = []
        for stream in streams:
            deltas = []
            while not deltas or deltas[-1].finish is None:
                deltas += await stream.next()
            lengths.append((len(deltas), deltas[-1].finish))
            assert all(d.prompt_tokens == 3 for d in deltas)
        assert lengths == [(1, "length"), (5, "length"), (1, "abort")]
        assert engine.stats()["running"] == 0
        again = engine.submit([1], SamplingParams(max_tokens=2), namespace=0, priority=0)
        assert len([*await again.next(), *await again.next()]) == 2
        engine.shutdown()

    asyncio.run(asyncio.wait_for(scenario(), 20))


@pytest.mark.slow
def test_the_command_counts_every_chunk(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    out = tmp_path / "out.json"
    sizes = ["--streams", "4", "--tokens", "30", "--requests", "40", "--connections", "4", "--rounds", "1"]
    assert main(["bench", "gateway", *sizes, "--out", str(out)]) == 0
    assert "chunks/s per core (goal 20,000)" in capsys.readouterr().out
    figures = json.loads(out.read_text())
    # Tokens that wait together make one chunk; the role and the finish have their own.
    assert 4 * 3 <= figures["chunks"][0]["units"] <= 4 * (30 + 2)
    assert figures["requests"][0]["units"] == 40
    assert 0 < figures["chunk_microseconds"] < 1e6


@pytest.mark.slow
@pytest.mark.unsanitized("measures time")
def test_a_chunk_costs_microseconds(tmp_path: Path) -> None:
    """The goals, with room for a machine that others use."""
    out = tmp_path / "out.json"
    assert main(["bench", "gateway", "--rounds", "5", "--out", str(out)]) == 0
    figures = json.loads(out.read_text())
    assert min(1e6 * c["cpu_seconds"] / c["units"] for c in figures["chunks"]) < 30
    assert max(c["units"] / c["cpu_seconds"] for c in figures["requests"]) > 2_500
