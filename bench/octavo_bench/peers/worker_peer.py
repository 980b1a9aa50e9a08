"""Peers that are libraries: each runs in its own interpreter, in a worker that speaks lines of JSON."""

from __future__ import annotations

import asyncio
import json
import shutil
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo_bench.client import Load, Record
from octavo_bench.peers.base import Started
from octavo_bench.peers.process import end, resident_mb, spawn

WORKERS = Path(__file__).parent / "workers"
LIMIT = 1800.0


@dataclass
class WorkerPeer:
    """``workers/<script>`` run by ``python``, which has the library; ``arguments`` go to the script.

    The worker reads one load per line and answers with one record per shot, timed inside its process.
    """

    name: str
    python: str
    script: str
    arguments: Sequence[str]
    log: Path
    kind: str = "library"
    _process: asyncio.subprocess.Process | None = None

    def missing(self) -> str | None:
        return None if shutil.which(self.python) else f"{self.python} is not there"

    async def start(self) -> Started:
        begin = time.perf_counter()
        self._process = await spawn(
            [self.python, str(WORKERS / self.script), *self.arguments], self.log, stdin=True
        )
        await self._ask({"shots": [{"prompt": [500, 501, 502, 503], "max_tokens": 1}]})
        return Started(time.perf_counter() - begin, self.resident_mb())

    async def run(self, load: Load) -> list[Record]:
        shots = [{"prompt": list(s.prompt), "max_tokens": s.max_tokens} for s in load.shots]
        answer = await self._ask({"shots": shots})
        return [
            Record(
                due=shot.due,
                dispatched=0.0,
                chunks=array("d", r["chunks"]),
                finished=r["finished"],
                ended=r["finished"],
                prompt_tokens=len(shot.prompt),
                output_tokens=r["tokens"],
            )
            for shot, r in zip(load.shots, answer["records"], strict=True)
        ]

    async def _ask(self, question: dict[str, Any]) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError(f"{self.name} has not been started")
        process.stdin.write(json.dumps(question).encode() + b"\n")
        await process.stdin.drain()
        line = await asyncio.wait_for(process.stdout.readline(), LIMIT)
        if not line:
            raise RuntimeError(f"the worker of {self.name} ended, see {self.log}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def resident_mb(self) -> float:
        return resident_mb(self._process.pid) if self._process else 0.0

    async def stop(self) -> None:
        if self._process:
            await end(self._process)
            self._process = None
