"""`octavo serve` as a user starts it: a process of its own with the default model."""

from __future__ import annotations

import re
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

MAIN = "import sys; from octavo.cli import main; sys.exit(main())"


class LiveServer:
    """A running server. ``ready_after`` is the time from the start of the process to its readiness."""

    def __init__(self, process: subprocess.Popen[str], base: str, started: float) -> None:
        self.process = process
        self.base = base
        self.started = started
        self.ready_after = time.monotonic() - started

    def anonymous_bytes(self) -> int:
        """Memory of the process that no file stands behind."""
        text = Path(f"/proc/{self.process.pid}/smaps_rollup").read_text()
        match = re.search(r"^Anonymous:\s+(\d+) kB", text, re.MULTILINE)
        assert match
        return int(match.group(1)) * 1024

    def mapped_files(self) -> str:
        return Path(f"/proc/{self.process.pid}/maps").read_text()


def _announced(stdout: IO[str], limit: float) -> str:
    """The address in the line that the server prints when it is ready."""
    found: list[str] = []

    def read() -> None:
        for line in stdout:
            if match := re.search(r"http://127\.0\.0\.1:\d+", line):
                found.append(match.group(0))
                break
        for _ in stdout:  # keep the pipe empty
            pass

    threading.Thread(target=read, daemon=True).start()
    deadline = time.monotonic() + limit
    while not found and time.monotonic() < deadline:
        time.sleep(0.005)
    return found[0] if found else ""


@contextmanager
def live_server(
    model: Path | str, *arguments: str, python: tuple[str, ...] = (), stderr_to: Path | None = None
) -> Iterator[LiveServer]:
    """Starts ``octavo serve`` on a free port and stops it with SIGTERM."""
    command = [sys.executable, *python, "-c", MAIN, "serve", str(model), "--port", "0", *arguments]
    with open(stderr_to, "w+") if stderr_to else tempfile.TemporaryFile("w+") as errors:
        started = time.monotonic()
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=errors, text=True)
        try:
            assert process.stdout
            base = _announced(process.stdout, 120)
            if not base:
                process.kill()
                errors.seek(0)
                raise AssertionError(f"the server did not become ready: {errors.read()[-4000:]}")
            yield LiveServer(process, base, started)
        finally:
            if process.poll() is None:
                process.send_signal(signal.SIGTERM)
                try:
                    process.wait(60)
                finally:
                    process.kill()
