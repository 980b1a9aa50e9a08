"""The mock server in a process of its own, so that it does not compete with the client for one event loop."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

MAIN = "import sys; from octavo.cli import main; sys.exit(main())"


@dataclass
class Mock:
    url: str
    process: subprocess.Popen[str]

    def truth(self) -> dict[str, list[float]]:
        """What it really did so far."""
        with urllib.request.urlopen(f"{self.url}/truth", timeout=10) as response:
            answer: dict[str, Any] = json.load(response)
        return answer


@contextmanager
def mock_server(*flags: str) -> Iterator[Mock]:
    command = [sys.executable, "-c", MAIN, "bench", "mock", "--port", "0", *flags]
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=env)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        yield Mock(line.split()[-1], process)
    finally:
        process.terminate()
        process.wait(10)
