"""Runs a load: each shot at its due time, whatever became of the ones before."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator

import aiohttp

from octavo_bench.client.body import request_body
from octavo_bench.client.records import Load, Record, Shot
from octavo_bench.client.stream import send
from octavo_bench.client.target import Target
from octavo_bench.precise_loop import sleep_until

# So many requests in a row that reach no server mean that there is none any more.
OUTAGE = 10
# Many servers close idle connections after 5 s; a request on one that is just closing would fail for nothing.
KEEP_ALIVE = 4.0


class LoadRun:
    """A load under way.

    Attributes:
        records: one per shot, in order; filled while the run goes on.
        done, failed, tokens: progress so far.
        stopped: why the run ended before its load did, or None.
    """

    def __init__(self, target: Target, load: Load) -> None:
        self.target, self.load = target, load
        self.records = [Record(due=shot.due) for shot in load.shots]
        self.done = self.failed = self.tokens = 0
        self.stopped: str | None = None
        self._next: dict[int, int] = {
            shot.previous: i for i, shot in enumerate(load.shots) if shot.previous is not None
        }
        self._unreachable = 0
        self._stop = asyncio.Event()
        self._gate = asyncio.Semaphore(load.concurrency or max(1, len(load.shots)))

    async def run(self, start: float | None = None) -> list[Record]:
        """Sends everything and returns the records. ``start`` is when second 0 is, on ``time.perf_counter``."""
        begin = time.perf_counter() if start is None else start

        def clock() -> float:
            return time.perf_counter() - begin

        async with aiohttp.ClientSession(
            connector=aiohttp.TCPConnector(limit=0, keepalive_timeout=KEEP_ALIVE, ssl=self.target.verify_tls),
            timeout=aiohttp.ClientTimeout(total=self.target.timeout),
            headers=self.target.headers,
        ) as session:
            work = asyncio.create_task(self._send_all(session, clock))
            stop = asyncio.create_task(self._stop.wait())
            try:
                await asyncio.wait({work, stop}, return_when=asyncio.FIRST_COMPLETED)
            finally:
                stop.cancel()
                work.cancel()
                await asyncio.wait({work, stop})
        if not work.cancelled() and (error := work.exception()):
            raise error
        for record in self.records:
            if record.released is None or record.dispatched is None:
                record.fail("not sent")
            elif record.finished is None and not record.cancelled:
                record.fail("interrupted")
        return self.records

    def stop(self, why: str) -> None:
        """Ends the run: what is under way is abandoned, what is left is not sent."""
        if self.stopped is None:
            self.stopped = why
            self._stop.set()

    async def _send_all(self, session: aiohttp.ClientSession, clock: Callable[[], float]) -> None:
        shots = self.load.shots
        order = sorted(
            (i for i in range(len(shots)) if shots[i].previous is None), key=lambda i: shots[i].due
        )
        tasks: list[asyncio.Task[None]] = []
        try:
            for i in order:
                await sleep_until(shots[i].due, clock)
                tasks.append(asyncio.create_task(self._converse(session, i, clock)))
            await asyncio.gather(*tasks)
        except BaseException:
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
            raise

    async def _converse(self, session: aiohttp.ClientSession, first: int, clock: Callable[[], float]) -> None:
        """One shot and the turns that follow it."""
        history: list[tuple[Shot, Record]] = []
        index: int | None = first
        while index is not None:
            shot, record = self.load.shots[index], self.records[index]
            body = request_body(self.target, shot, history)
            if shot.previous is not None:
                record.due = clock() + shot.think
                await sleep_until(record.due, clock)
            record.released = clock()
            async with self._gate:
                await send(session, self.target, shot, body, record, clock)
            self._count(record)
            if not record.ok:
                for later in self._after(index):
                    self.records[later].due = clock()
                return
            history.append((shot, record))
            index = self._next.get(index)

    def _after(self, index: int) -> Iterator[int]:
        following = self._next.get(index)
        while following is not None:
            yield following
            following = self._next.get(following)

    def _count(self, record: Record) -> None:
        self.done += 1
        self.tokens += record.tokens
        self.failed += record.failure is not None
        self._unreachable = self._unreachable + 1 if record.failure == "connect" else 0
        if self._unreachable >= OUTAGE:
            self.stop(f"the server went away: {record.error}")


async def run_load(target: Target, load: Load) -> list[Record]:
    """Sends ``load`` to ``target`` and returns one record per shot, in order."""
    return await LoadRun(target, load).run()
