"""``octavo bench step``: the phases add up to the step, and an engine that does not trace says so."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from octavo import _engine
from octavo.cli.main import main
from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError
from octavo.loading import load
from octavo_bench.step.measure import LOST, measure
from octavo_bench.step.report import table
from octavo_bench.workloads import Shape

TINY = Shape(batch=3, prompt=20, output=5, prefill_batch=2, prefill_prompt=40)


@pytest.fixture(scope="module")
def arguments(smollm2: Path) -> EngineArgs:
    return EngineArgs(model=str(smollm2), threads=1, skip_tokenizer_init=True, num_gpu_blocks_override=64)


@pytest.mark.slow
def test_the_phases_of_a_part_add_up_to_its_time(arguments: EngineArgs) -> None:
    model = load(arguments, trace=True)
    try:
        parts = {part.name: part for part in measure(model, TINY, model.vocab_size)}
    finally:
        model.shutdown()
    decode = parts["W2 decode"]
    # Prompts that arrive later are computed beside the first one's answer, in steps that do not count as decoding.
    assert decode.steps >= TINY.output - TINY.batch
    assert decode.seconds == pytest.approx(sum(ns for ns, _ in decode.phases.values()) / 1e9)
    layers = model.config.num_layers
    assert decode.phases["attention"][1] == layers * decode.steps
    assert decode.phases["linear gate_proj+up_proj"][1] == layers * decode.steps
    assert decode.phases["sample"][1] == decode.steps
    assert decode.phases[LOST][0] < decode.seconds * 1e9
    assert 0 < decode.host_us < decode.seconds * 1e6 / decode.steps
    assert "attention" in table(decode)


def test_an_engine_made_without_trace_refuses(arguments: EngineArgs) -> None:
    model = load(arguments)
    try:
        with pytest.raises(InvalidArgumentError, match="made without trace"):
            model.engine.take_trace()
    finally:
        model.shutdown()


@pytest.mark.slow
def test_the_command_writes_its_figures(smollm2: Path, tmp_path: Path) -> None:
    out = tmp_path / "step.json"
    assert main(["bench", "step", "--model", str(smollm2), "--short", "--out", str(out)]) == 0
    document = json.loads(out.read_text())
    assert {part["name"] for part in document["parts"]} >= {"W1 decode", "W2 decode", "W4 prefill"}
    assert all(part["phases"]["plan"]["us"] > 0 for part in document["parts"])


@pytest.mark.slow
def test_the_host_s_share_of_a_gpu_s_steps_is_measured_without_kernels(tmp_path: Path) -> None:
    """In a process of its own: what leaves kernels out there would leave them out of other tests."""
    if not (Path(_engine.__file__).resolve().parent / "liboctavo_cuda_emulated.so").exists():
        pytest.skip("this build of octavo has no CUDA emulator")
    out = tmp_path / "host.json"
    command = [sys.executable, "-m", "octavo", "bench", "step", "--host", "--out", str(out)]
    subprocess.run(command, check=True, capture_output=True)
    parts = {part["name"]: part for part in json.loads(out.read_text())["parts"]}
    assert set(parts) == {"1 sequence", "32 sequences", "256 sequences"}
    assert all(
        part["phases"][name]["us"] > 0 for part in parts.values() for name in ("plan", "draw", "commit")
    )
