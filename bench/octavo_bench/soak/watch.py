"""Looks at the server while a soak runs: its memory, its books, whether it says it is ready."""

from __future__ import annotations

import asyncio
import time
from types import TracebackType

import aiohttp

from octavo_bench.own_server import ServedProcess, own_memory


class Watch:
    """Takes a look every ``interval`` seconds while its ``async with`` lasts.

    Attributes:
        times, memory, preemptions: seconds since the start, and the server's own bytes and its preemptions until then.
        audits: audits that were clean.
        complaints: what an audit or /ready said.
    """

    def __init__(self, server: ServedProcess, interval: float) -> None:
        self._server, self._interval = server, interval
        self.times: list[float] = []
        self.memory: list[float] = []
        self.preemptions: list[float] = []
        self.audits = 0
        self.complaints: list[str] = []
        self._task: asyncio.Task[None] | None = None
        self._start = 0.0

    async def __aenter__(self) -> Watch:
        self._start = time.perf_counter()
        self._task = asyncio.create_task(self._run())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._task is not None
        self._task.cancel()
        await asyncio.wait({self._task})

    def preempting(self, slices: int) -> int:
        """In how many equal parts of the time somebody was preempted."""
        if not self.times:
            return 0
        parts: dict[int, list[float]] = {}
        for seconds, count in zip(self.times, self.preemptions, strict=True):
            parts.setdefault(int(slices * seconds / (self.times[-1] * (1 + 1e-9))), []).append(count)
        before, out = 0.0, 0
        for _, counts in sorted(parts.items()):
            out += counts[-1] > before
            before = counts[-1]
        return out

    async def _run(self) -> None:
        while True:
            await asyncio.sleep(self._interval)
            try:
                await self._look()
            except (aiohttp.ClientError, OSError) as e:
                self.complaints.append(f"{type(e).__name__}: {e}")

    async def _look(self) -> None:
        clean, said = await self._server.audit()
        if clean:
            self.audits += 1
        else:
            self.complaints.append(f"audit: {said[:300]}")
        status, said = await self._server.get("/ready")
        if status != 200:
            self.complaints.append(f"/ready {status}: {said[:300]}")
        self.preemptions.append((await self._server.samples())["vllm:num_preemptions_total"])
        self.memory.append(float(own_memory(self._server.pid)))
        self.times.append(time.perf_counter() - self._start)
