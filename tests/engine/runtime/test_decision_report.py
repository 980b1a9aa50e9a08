"""A file with the last decisions: by hand, and by the signal that ends a process."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from conftest_runtime import collect, make_engine, params

from octavo import _engine

AT, SIZE = 100, 8192


def lines(path: Path) -> list[dict[str, object]]:
    raw = path.read_bytes()[AT : AT + SIZE]
    assert len(raw) == SIZE and raw.endswith(b"\n")
    return [json.loads(line) for line in raw.decode().split("\n") if line.strip()]


def test_it_holds_the_last_that_fit_in_its_place(engine: _engine.Engine, tmp_path: Path) -> None:
    file = tmp_path / "report"
    fd = os.open(file, os.O_CREAT | os.O_RDWR)
    os.write(fd, b"#" * (AT + SIZE + 50))
    report = engine.report_decisions(fd, AT, SIZE)
    report.write()
    assert lines(file) == []
    channel = engine.open_channel()
    for tenant in (1, 2**64 - 1, 2):
        collect(channel, [engine.submit([5, 6, 7], params(max_tokens=100), channel, tenant=tenant)])
    report.write()
    told = engine.decisions()
    shown = lines(file)
    assert 60 < len(shown) < len(told) and shown == told[-len(shown) :]
    with pytest.raises(ValueError, match="another engine"):
        engine.report_decisions(fd, AT, SIZE)
    del report
    again = engine.report_decisions(fd, AT, SIZE)
    engine.shutdown()
    again.write()  # what a dead engine did can still be told
    assert lines(file)[-1]["kind"] == "end"
    raw = file.read_bytes()
    assert raw[:AT] == b"#" * AT and raw[AT + SIZE :] == b"#" * 50
    os.close(fd)


def crash(folder: Path, number: int) -> None:
    """In a process of its own: a step is under way when the signal comes, and nothing was written by hand."""
    import faulthandler

    stacks = open(folder / "stacks", "w")  # noqa: SIM115 - until the end
    faulthandler.enable(stacks)
    fd = os.open(folder / "report", os.O_CREAT | os.O_RDWR)
    engine = make_engine()
    report = engine.report_decisions(fd, AT, SIZE)
    channel = engine.open_channel()
    collect(channel, [engine.submit([5, 6, 7], params(max_tokens=3), channel)])
    engine.inject_fault("hold", times=1, seconds=60.0)
    engine.submit([8, 9], params(), channel)
    while (last := engine.decisions()[-1])["kind"] != "plan" or last["step"] < 4:
        pass
    os.kill(os.getpid(), number)
    del report


ASAN_ENDS_IT = pytest.mark.unsanitized("AddressSanitizer answers this signal itself")


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGSEGV, marks=ASAN_ENDS_IT),
        pytest.param(signal.SIGBUS, marks=[ASAN_ENDS_IT, pytest.mark.slow]),
        pytest.param(signal.SIGABRT, marks=pytest.mark.slow),
    ],
)
def test_a_fatal_signal_brings_it_up_to_date_and_goes_on(number: signal.Signals, tmp_path: Path) -> None:
    code = (
        f"import test_decision_report as t, pathlib; t.crash(pathlib.Path({str(tmp_path)!r}), {int(number)})"
    )
    path = os.pathsep.join([str(Path(__file__).parent), *(p for p in sys.path if p)])
    ended = subprocess.run([sys.executable, "-c", code], env={**os.environ, "PYTHONPATH": path}, timeout=60)
    assert ended.returncode == -number
    told = lines(tmp_path / "report")
    assert [e["prompt_tokens"] for e in told if e["kind"] == "add"] == [3, 2]
    assert told[-1]["kind"] == "plan" and told[-1]["rows"] == 1  # the step that hangs
    assert "Fatal Python error" in (tmp_path / "stacks").read_text()


@pytest.mark.slow
def test_decisions_are_told_while_a_step_hangs(engine: _engine.Engine) -> None:
    engine.inject_fault("hold", times=1, seconds=1.5)
    channel = engine.open_channel()
    engine.submit([5, 6, 7], params(), channel)
    while not (told := engine.decisions()) or told[-1]["kind"] != "plan":
        pass
    assert [e["kind"] for e in told] == ["add", "admit", "plan"]


def test_nothing_is_told_before_the_start() -> None:
    from conftest_runtime import tiny_config, tiny_weights

    with pytest.raises(ValueError, match="was not started"):
        _engine.Engine(tiny_config(), tiny_weights(), num_blocks=8).decisions()
