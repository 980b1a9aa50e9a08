"""The check of a GPU, run with small shapes on backends that are there without one."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from octavo import _engine
from octavo_bench.cuda.parts import PARTS, run_part


def run_check(out: Path, *flags: str) -> tuple[int, list[dict[str, Any]]]:
    """Its exit status and what it wrote."""
    done = subprocess.run(
        [sys.executable, "-m", "octavo_bench.cuda", "--tiny", "--seconds", "600", "--out", str(out), *flags],
        capture_output=True,
        text=True,
        timeout=620,
        check=False,
    )
    return done.returncode, json.loads(out.read_text())


def test_a_part_that_fails_is_wrong_and_the_others_are_told(tmp_path: Path) -> None:
    status, lines = run_check(tmp_path / "out.json", "--device", "nowhere", "--parts", "draws")
    assert status == 1
    wrong = [line["name"] for line in lines if line["ok"] is False]
    assert len(wrong) == 1 and "nowhere" in wrong[0]


def test_parts_without_time_are_told_too(tmp_path: Path) -> None:
    status, lines = run_check(tmp_path / "out.json", "--device", "cpu", "--seconds", "1")
    assert status == 1
    assert {(line["part"], line["name"]) for line in lines} == {
        (part, "not run: no time was left") for part in PARTS
    }


@pytest.mark.slow
def test_a_part_that_takes_too_long_keeps_what_it_told(tmp_path: Path) -> None:
    lines = run_part("models", "cpu", tiny=False, seconds=6)
    assert any("took longer than 6 s" in line["name"] for line in lines)
    assert lines[-2]["name"] == "time of the part" and 6 <= lines[-2]["value"] < 20


@pytest.mark.slow
@pytest.mark.timeout(700)
def test_every_part_runs_on_the_cpu(tmp_path: Path) -> None:
    parts = ["tensors", "kernels", "models", "same bits", "attention", "throughput"]
    status, lines = run_check(tmp_path / "out.json", "--device", "cpu", "--parts", *parts)
    assert status == 0, [line for line in lines if line["ok"] is False]
    assert {line["part"] for line in lines} == set(parts)
    assert sum(line["kind"] == "check" for line in lines) > 30


@pytest.mark.slow
def test_draws_are_checked_on_the_emulated_gpu(tmp_path: Path) -> None:
    if not (Path(_engine.__file__).resolve().parent / "liboctavo_cuda_emulated.so").exists():
        pytest.skip("this build of octavo has no CUDA emulator")
    status, lines = run_check(tmp_path / "out.json", "--device", "cuda-emulated", "--parts", "draws")
    assert status == 0 and any(line["kind"] == "check" for line in lines)
