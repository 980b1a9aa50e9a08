"""The client watches itself: a client that is busy measures itself, not the server."""

from __future__ import annotations

import asyncio
import time
from array import array
from collections.abc import Sequence
from dataclasses import dataclass
from types import TracebackType

import numpy as np

INTERVAL = 0.02
CPU_INTERVAL = 1.0

# Beyond these the figures say more about the client than about the server.
MOST_LAG = 0.02
MOST_CPU = 0.85
MOST_DELAY = 0.02


@dataclass(frozen=True, slots=True)
class Watch:
    """How one process of the client fared.

    Attributes:
        lag_p99, lag_max: how late the event loop woke, in seconds.
        cpu_mean, cpu_max: share of one core that was used over the run, and in its busiest second.
        cpu_seconds: processor time used.
        chunks: chunks that this process took in.
    """

    lag_p99: float
    lag_max: float
    cpu_mean: float
    cpu_max: float
    cpu_seconds: float
    chunks: int = 0

    @property
    def chunks_per_cpu_second(self) -> float:
        return self.chunks / self.cpu_seconds if self.cpu_seconds else 0.0


class SelfWatch:
    """Samples the loop's lag and the process's CPU while its ``async with`` lasts."""

    def __init__(self) -> None:
        self._lags = array("d")
        self._shares = array("d")
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._task: asyncio.Task[None] | None = None

    async def __aenter__(self) -> SelfWatch:
        self._wall, self._cpu = time.perf_counter(), time.process_time()
        self._task = asyncio.create_task(self._sample())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def _sample(self) -> None:
        wall, cpu = self._wall, self._cpu
        while True:
            before = time.perf_counter()
            await asyncio.sleep(INTERVAL)
            now = time.perf_counter()
            self._lags.append(max(0.0, now - before - INTERVAL))
            if now - wall >= CPU_INTERVAL:
                used = time.process_time()
                self._shares.append((used - cpu) / (now - wall))
                wall, cpu = now, used

    def report(self, chunks: int) -> Watch:
        """The figures so far; ``chunks`` is what the process took in."""
        wall, cpu = time.perf_counter() - self._wall, time.process_time() - self._cpu
        lags = np.array(self._lags) if self._lags else np.zeros(1)
        mean = cpu / wall if wall > 0 else 0.0
        return Watch(
            float(np.percentile(lags, 99)),
            float(lags.max()),
            mean,
            max([mean, *self._shares]),
            cpu,
            chunks,
        )


def limits(watches: Sequence[Watch], dispatch_delay_p99: float | None) -> list[str]:
    """Why the client, not the server, may have set the figures; empty where it has not.

    Args:
        dispatch_delay_p99: how late requests were sent against the schedule; None where there is no schedule.
    """
    reasons = []
    if (cpu := max(w.cpu_max for w in watches)) > MOST_CPU:
        reasons.append(f"a client process used {cpu:.0%} of a core in its busiest second")
    if (lag := max(w.lag_p99 for w in watches)) > MOST_LAG:
        reasons.append(f"the event loop woke {lag * 1e3:.0f} ms late (p99)")
    if dispatch_delay_p99 is not None and dispatch_delay_p99 > MOST_DELAY:
        reasons.append(f"requests were sent {dispatch_delay_p99 * 1e3:.0f} ms after they were due (p99)")
    return reasons
