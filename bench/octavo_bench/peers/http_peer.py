"""Peers that are OpenAI-compatible servers: Octavo, llama.cpp, vLLM."""

from __future__ import annotations

import asyncio
import shutil
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from octavo_bench.client import Load, Record, Shot, Target, run_load
from octavo_bench.peers.base import Started
from octavo_bench.peers.process import end, free_port, resident_mb, spawn

START_LIMIT = 900.0  # vLLM compiles for minutes


@dataclass
class HttpPeer:
    """A server started by ``command``, in which ``{port}`` stands for the port it shall listen on."""

    name: str
    command: Sequence[str]
    log: Path
    model: str
    env: Mapping[str, str] = field(default_factory=dict)
    kind: str = "server"
    _process: asyncio.subprocess.Process | None = None
    _target: Target = field(init=False)

    def missing(self) -> str | None:
        program = self.command[0]
        return None if shutil.which(program) else f"{program} is not there"

    async def start(self) -> Started:
        port = free_port()
        self._target = Target(f"http://127.0.0.1:{port}", self.model, body={"temperature": 0})
        begin = time.perf_counter()
        self._process = await spawn([part.format(port=port) for part in self.command], self.log, env=self.env)
        await self._first_token(begin)
        return Started(time.perf_counter() - begin, self.resident_mb())

    async def _first_token(self, begin: float) -> None:
        """Polls until one token comes back."""
        shot = Load([Shot(0.0, [500, 501, 502, 503], 1, {"ignore_eos": True})])
        while time.perf_counter() - begin < START_LIMIT:
            if self._process is None or self._process.returncode is not None:
                raise RuntimeError(f"{self.name} ended while starting, see {self.log}")
            (record,) = await run_load(self._target, shot)
            if record.ok:
                return
            if record.failure and record.failure.startswith("HTTP 4"):
                raise RuntimeError(f"{self.name} refused a request: {record.error}")
            await asyncio.sleep(0.01)
        raise RuntimeError(f"{self.name} gave no token within {START_LIMIT:.0f} s, see {self.log}")

    async def run(self, load: Load) -> list[Record]:
        return await run_load(self._target, load)

    def resident_mb(self) -> float:
        return resident_mb(self._process.pid) if self._process else 0.0

    async def stop(self) -> None:
        if self._process:
            await end(self._process)
            self._process = None
