"""Child processes of the benchmark: started here, watched here, ended here by pid."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
from collections.abc import Mapping, Sequence
from pathlib import Path


def free_port() -> int:
    """A port that is free on the loopback interface now."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


def resident_mb(pid: int) -> float:
    """Resident memory of a process and its children in MB, file pages included; 0 when it is gone."""
    total = 0.0
    for p in [pid, *_children(pid)]:
        try:
            for line in Path(f"/proc/{p}/status").read_text().splitlines():
                if line.startswith("VmRSS:"):
                    total += int(line.split()[1]) / 1024
        except OSError:
            continue
    return total


def _children(pid: int) -> list[int]:
    try:
        direct = [int(p) for p in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    except OSError:
        return []
    return [d for child in direct for d in (child, *_children(child))]


async def spawn(
    command: Sequence[str], log: Path, *, stdin: bool = False, env: Mapping[str, str] | None = None
) -> asyncio.subprocess.Process:
    """Starts ``command`` in a process group of its own, its errors (and, without ``stdin``, its output) in ``log``."""
    pipe = asyncio.subprocess.PIPE
    with log.open("ab") as out:
        return await asyncio.create_subprocess_exec(
            *command,
            stdin=pipe if stdin else asyncio.subprocess.DEVNULL,
            stdout=pipe if stdin else out,
            stderr=out,
            env={**os.environ, **(env or {})},
            limit=1 << 26,
            start_new_session=True,
        )


async def end(process: asyncio.subprocess.Process, grace: float = 10.0) -> None:
    """Asks the process to go, and after ``grace`` seconds makes it; what it started goes with it."""
    if process.returncode is None:
        process.send_signal(signal.SIGTERM)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(process.wait(), grace)
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    await process.wait()
    # Its pipes end with the last of the group; the event loop closes them.
    if process.stdin is not None:
        process.stdin.close()
    if process.stdout is not None:
        await process.stdout.read()
    await asyncio.sleep(0)
