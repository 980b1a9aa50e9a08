"""A peer's processes never outlive it."""

from __future__ import annotations

import asyncio
import os
import sys
import time
from pathlib import Path

from octavo_bench.peers.process import end, spawn

CHILD = "import signal, time; signal.signal(15, signal.SIG_IGN); time.sleep(60)"
PARENT = f"""
import subprocess, sys, time
print(subprocess.Popen([sys.executable, "-c", {CHILD!r}]).pid, flush=True)
time.sleep(60)
"""


def running(pid: int) -> bool:
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except OSError:
        return False
    return state != "Z"


def test_what_a_peer_started_goes_with_it(tmp_path: Path) -> None:
    async def scenario() -> int:
        process = await spawn([sys.executable, "-c", PARENT], tmp_path / "log", stdin=True)
        assert process.stdout is not None
        child = int(await process.stdout.readline())
        assert running(child) and os.getpgid(child) == process.pid
        await end(process, grace=0.3)
        assert process.returncode is not None
        return child

    child = asyncio.run(scenario())
    deadline = time.monotonic() + 5
    while running(child) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert not running(child)
