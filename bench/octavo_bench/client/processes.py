"""One load, run in this process or split over several of them."""

from __future__ import annotations

import asyncio
import contextlib
import multiprocessing
import signal
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from multiprocessing.connection import Connection
from typing import Any

from octavo.errors import OctavoError
from octavo_bench import precise_loop
from octavo_bench.client.load import LoadRun
from octavo_bench.client.records import Load, Record
from octavo_bench.client.target import Target
from octavo_bench.client.watch import SelfWatch, Watch

REPORT_EVERY = 0.2
# The processes agree on a moment to start at; this far ahead, all of them are waiting for it.
HEAD_START = 0.1


@dataclass(frozen=True, slots=True)
class Progress:
    """Requests ended, those that failed, tokens received."""

    done: int = 0
    failed: int = 0
    tokens: int = 0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Records in the order of the load's shots, how each process fared, and why the run ended early if it did."""

    records: list[Record]
    watches: list[Watch]
    stopped: str | None


class Client:
    """Runs one load once.

    Args:
        processes: how many share the load; each conversation stays within one.
    """

    def __init__(self, target: Target, load: Load, processes: int = 1) -> None:
        self.target, self.load = target, load
        self._own: LoadRun | None = None
        self._pipes: list[Connection] = []
        self._stopped: str | None = None
        self._parts = _split(load, processes)
        self._progress = [Progress() for _ in self._parts]

    @property
    def progress(self) -> Progress:
        """How far it is."""
        if self._own is not None:
            return Progress(self._own.done, self._own.failed, self._own.tokens)
        return Progress(
            *(sum(getattr(p, name) for p in self._progress) for name in ("done", "failed", "tokens"))
        )

    def stop(self, why: str) -> None:
        """Ends the run; its records say what came so far."""
        if self._stopped is None:
            self._stopped = why
            if self._own is not None:
                self._own.stop(why)
            for pipe in self._pipes:
                with contextlib.suppress(OSError):  # that process has ended
                    pipe.send(why)

    async def run(self) -> Outcome:
        if len(self._parts) == 1:
            self._own = LoadRun(self.target, self.load)
            records, watch = await _run_watched(self._own, None)
            return Outcome(records, [watch], self._own.stopped)
        return await self._run_split()

    async def _run_split(self) -> Outcome:
        context = multiprocessing.get_context("spawn")
        processes = []
        try:
            for part in self._parts:
                ours, theirs = context.Pipe()
                process = context.Process(target=_work, args=(theirs,), daemon=True)
                process.start()
                theirs.close()
                processes.append(process)
                self._pipes.append(ours)
                ours.send((self.target, part.load(self.load)))
            for pipe in self._pipes:
                await _receive(pipe)  # ready
            start = time.perf_counter() + HEAD_START
            for pipe in self._pipes:
                pipe.send(start)
            results = await asyncio.gather(*(self._follow(i) for i in range(len(self._pipes))))
        finally:
            for process in processes:
                process.terminate()
                await asyncio.to_thread(process.join)
        records: list[Record | None] = [None] * len(self.load.shots)
        for part, (part_records, _, _) in zip(self._parts, results, strict=True):
            for index, record in zip(part.indices, part_records, strict=True):
                records[index] = record
        stopped = self._stopped or next((why for _, _, why in results if why), None)
        return Outcome([r for r in records if r is not None], [watch for _, watch, _ in results], stopped)

    async def _follow(self, i: int) -> tuple[list[Record], Watch, str | None]:
        while True:
            message = await _receive(self._pipes[i])
            if not isinstance(message, Progress):
                records, watch, stopped = message
                if stopped:
                    self.stop(stopped)
                return records, watch, stopped
            self._progress[i] = message


@dataclass(frozen=True, slots=True)
class _Part:
    """The shots of one process by their index in the load, and its share of the requests under way."""

    indices: Sequence[int]
    concurrency: int | None

    def load(self, load: Load) -> Load:
        place = {index: i for i, index in enumerate(self.indices)}
        shots = [
            shot if shot.previous is None else replace(shot, previous=place[shot.previous])
            for shot in (load.shots[i] for i in self.indices)
        ]
        return Load(shots, self.concurrency)


def _split(load: Load, processes: int) -> list[_Part]:
    count = max(1, min(processes, len(load.shots), load.concurrency or processes))
    owner: dict[int, int] = {}
    conversations = 0
    for i, shot in enumerate(load.shots):
        if shot.previous is None:
            owner[i] = conversations % count
            conversations += 1
        else:
            owner[i] = owner[shot.previous]
    shares: list[int | None] = [None] * count
    if load.concurrency:
        shares = [load.concurrency // count + (i < load.concurrency % count) for i in range(count)]
    return [_Part([i for i, o in owner.items() if o == p], shares[p]) for p in range(count)]


async def _receive(pipe: Connection) -> Any:
    try:
        return await asyncio.to_thread(pipe.recv)
    except (EOFError, OSError) as error:
        raise OctavoError("a process of the client ended before its load did") from error


async def _run_watched(run: LoadRun, start: float | None) -> tuple[list[Record], Watch]:
    async with SelfWatch() as watch:
        records = await run.run(start)
        return records, watch.report(sum(len(r.chunks) for r in records))


def _work(pipe: Connection) -> None:
    """A process of the client: what it shall send, ready, when to start; then progress and at last the records."""
    signal.signal(
        signal.SIGINT, signal.SIG_IGN
    )  # the terminal's interrupt is the parent's, which passes it on
    target, load = pipe.recv()
    run = LoadRun(target, load)
    pipe.send(None)
    start = pipe.recv()
    if isinstance(start, str):  # stopped before it began
        run.stop(start)
        start = None
    precise_loop.run(_work_async(pipe, run, start))


async def _work_async(pipe: Connection, run: LoadRun, start: float | None) -> None:
    loop = asyncio.get_running_loop()
    loop.add_reader(pipe.fileno(), lambda: _obey(pipe, run, loop))
    reports = asyncio.create_task(_report(pipe, run))
    records, watch = await _run_watched(run, start)
    reports.cancel()
    loop.remove_reader(pipe.fileno())
    pipe.send((records, watch, run.stopped))


def _obey(pipe: Connection, run: LoadRun, loop: asyncio.AbstractEventLoop) -> None:
    try:
        run.stop(pipe.recv())
    except EOFError:  # the parent is gone
        loop.remove_reader(pipe.fileno())
        run.stop("the parent process ended")


async def _report(pipe: Connection, run: LoadRun) -> None:
    while True:
        await asyncio.sleep(REPORT_EVERY)
        pipe.send(Progress(run.done, run.failed, run.tokens))
