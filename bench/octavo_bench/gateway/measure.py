"""Runs a server process and client processes, and reads the server's CPU clock around them."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from octavo.errors import OctavoError

_CLIENT = Path(__file__).with_name("client.py")


@dataclass(frozen=True, slots=True)
class Cost:
    """What a load cost the server's process.

    Attributes:
        units: chunks or requests.
        seconds: from the clients' start to their end.
        cpu_seconds: of the server, or of its event loop's thread alone; says more than ``seconds`` where others use the
            machine too.
    """

    units: int
    seconds: float
    cpu_seconds: float

    @property
    def microseconds(self) -> float:
        """CPU time per unit."""
        return 1e6 * self.cpu_seconds / self.units

    @property
    def per_core(self) -> float:
        """Units per second that one core carries."""
        return self.units / self.cpu_seconds

    @property
    def rate(self) -> float:
        """Units per second as it went."""
        return self.units / self.seconds


class Server:
    """A running server process."""

    def __init__(self, process: subprocess.Popen[str], port: int, *, loop_only: bool) -> None:
        self._process = process
        self._port = port
        self._loop_only = loop_only

    def _cpu(self) -> float:
        """Seconds that the server has used; of its main thread where only the event loop's work counts."""
        pid = self._process.pid
        if self._loop_only:
            return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9
        # The kernel's number for the CPU clock of another process, as clock_getcpuclockid(3) gives it.
        return time.clock_gettime((~pid << 3) | 2)

    def streamed(self, streams: int, tokens: int) -> Cost:
        """``streams`` at once, each of ``tokens`` chunks (and one with the role, and one with the finish)."""
        return self._load("stream", streams, streams, tokens)

    def whole(self, connections: int, requests: int, tokens: int) -> Cost:
        """``requests`` without streaming over ``connections``."""
        cost = self._load("whole", connections, requests, tokens)
        if cost.units != requests:
            raise OctavoError(f"{requests - cost.units} of {requests} requests were not answered with 200")
        return cost

    def _load(self, mode: str, connections: int, requests: int, tokens: int) -> Cost:
        arguments = (mode, *map(str, (self._port, connections, requests, tokens)))
        cpu, begin = self._cpu(), time.perf_counter()
        done = subprocess.run(
            [sys.executable, str(_CLIENT), *arguments], stdout=subprocess.PIPE, text=True, check=False
        )
        seconds, cpu = time.perf_counter() - begin, self._cpu() - cpu
        if done.returncode:
            raise OctavoError(f"the client ended with {done.returncode}")
        return Cost(int(done.stdout), seconds, cpu)


@contextmanager
def running_server(command: Sequence[str], *, loop_only: bool = False) -> Iterator[Server]:
    """Starts a server that announces its port on stdout, and stops it in the end.

    Args:
        loop_only: count the CPU time of the event loop's thread alone, where an engine has threads of its own.
    """
    process = subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
    )
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)", line)
        if found is None:
            raise OctavoError(f"the server did not start: it said {line!r}")
        yield Server(process, int(found[1]), loop_only=loop_only)
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(20)
        finally:
            process.kill()
