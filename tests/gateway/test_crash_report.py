"""What a process leaves that dies: enough to understand it, and nothing that was said to it."""

from __future__ import annotations

import json
import os
import signal
import time
from pathlib import Path

import pytest
from test_lifecycle import finishes, post
from test_lifecycle import server as process_server

from octavo_gateway.server.crash_report import CrashReport, without_secrets

PROMPT = "Hi"  # what `post` says


ASAN_ENDS_IT = pytest.mark.unsanitized("AddressSanitizer answers this signal itself")


@pytest.mark.slow
@pytest.mark.parametrize(
    "number", [pytest.param(signal.SIGSEGV, marks=ASAN_ENDS_IT), signal.SIGABRT, signal.SIGKILL]
)
def test_a_crash_leaves_a_report_without_text(number: signal.Signals, tmp_path: Path) -> None:
    with process_server(tokens=1000, step_seconds=0.02, crash_folder=str(tmp_path)) as (process, port):
        stream = post(port)
        (file,) = tmp_path.iterdir()
        deadline = time.monotonic() + 10  # a note is taken every second
        while '"running": 1' not in file.read_text() and time.monotonic() < deadline:
            time.sleep(0.05)
        os.kill(process.pid, number)
        assert process.wait(10) == -number
        stream.close()
    (file,) = tmp_path.iterdir()
    assert file.stat().st_mode & 0o077 == 0
    text = file.read_text()
    head, _, rest = text.partition("\nat ")
    assert head.startswith("octavo ") and f"pid {process.pid}" in head and "started " in head
    state = json.loads(rest.partition(": ")[2].splitlines()[0])
    assert state["accepted"] == state["running"] == 1 and state["phase"] == "ready"
    assert json.loads(text.partition("\nengine ")[2].splitlines()[0]) == {"num_blocks": 64}
    assert ("Fatal Python error" in text and "Thread 0x" in text) == (number != signal.SIGKILL)
    assert PROMPT not in text and '"x"' not in text
    # The next process serves as usual, and an orderly end leaves nothing of its own.
    with process_server(tokens=3, crash_folder=str(tmp_path)) as (process, port):
        assert len(list(tmp_path.iterdir())) == 2
        assert finishes(post(port).read()) == ["stop"]
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    assert list(tmp_path.iterdir()) == [file]


def test_an_exception_is_told_by_its_place(tmp_path: Path) -> None:
    report, message = CrashReport(str(tmp_path / "new"), ["serve"]), "a " + "se" + "cret word"
    try:
        raise RuntimeError(message)
    except RuntimeError as e:
        report.fault(e)
    (file,) = (tmp_path / "new").iterdir()
    text = file.read_text()
    assert "ended by RuntimeError" in text and "test_an_exception_is_told" in text and "secret" not in text
    assert '"phase": "starting"' in text
    assert len(text) < 2000 and " \n" not in text and "\n\n" not in text


def test_few_reports_are_kept_and_no_folder_is_no_trouble(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    for i in range(30):
        (tmp_path / f"octavo-{i}.txt").write_text("")
        os.utime(tmp_path / f"octavo-{i}.txt", (i, i))
    CrashReport(str(tmp_path), []).remove()
    assert {f.name for f in tmp_path.iterdir()} == {f"octavo-{i}.txt" for i in range(14, 30)}
    file = tmp_path / "octavo-29.txt"
    CrashReport(str(file), []).remove()
    assert "a crash would leave no report" in caplog.text
    CrashReport(None, []).remove()


def test_keys_are_left_out() -> None:
    line = "serve m --api-key one --api-key=two --admin-k three --api-key-file f --port 1"
    assert without_secrets(line.split()) == (
        [
            "serve",
            "m",
            "--api-key",
            "***",
            "--api-key=***",
            "--admin-k",
            "***",
            "--api-key-file",
            "f",
            "--port",
            "1",
        ]
    )
