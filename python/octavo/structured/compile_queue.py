"""Threads for work that may take long, shared so that nobody's holds up everybody else's."""

from __future__ import annotations

import threading
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Generic, TypeVar

T = TypeVar("T")

LONG_SECONDS = 0.25  # after which work no longer keeps a thread from others
_LONG_EACH = 2  # of one tenant; with so many it starts nothing else


@dataclass(eq=False)
class _Job(Generic[T]):
    tenant: Hashable
    work: Callable[[], T]
    future: Future[T] = field(default_factory=Future)
    started: float = 0.0  # monotonic seconds


class CompileQueue(Generic[T]):
    """Tenants take turns, and what runs for long gives its place to a further thread, of which there are up to three
    for each of the `threads`: so nobody waits for another's work much longer than `LONG_SECONDS`.

    Nothing stops work that has begun: it must have bounds of its own.

    Args:
        threads: that run work which is not long.
        begin: called first on each thread.
    """

    def __init__(self, threads: int, begin: Callable[[], None]) -> None:
        self._threads = threads
        self._most = 4 * threads
        self._pool = ThreadPoolExecutor(self._most, thread_name_prefix="octavo-grammar", initializer=begin)
        self._lock = threading.Lock()
        self._waiting: OrderedDict[Hashable, deque[_Job[T]]] = OrderedDict()  # in the order of their turns
        self._running: list[_Job[T]] = []
        self._alarm: threading.Timer | None = None
        self._closed = False

    def submit(self, tenant: Hashable, work: Callable[[], T]) -> Future[T]:
        """Run `work` when it is the tenant's turn."""
        job = _Job(tenant, work)
        with self._lock:
            if self._closed:
                raise RuntimeError("the queue is closed")
            self._waiting.setdefault(tenant, deque()).append(job)
            self._start()
        return job.future

    def close(self) -> None:
        """Begin nothing more; what waits is cancelled."""
        with self._lock:
            self._closed = True
            waiting = [job for jobs in self._waiting.values() for job in jobs]
            self._waiting.clear()
            if self._alarm is not None:
                self._alarm.cancel()
        for job in waiting:
            job.future.cancel()
        self._pool.shutdown(wait=False)

    def _start(self) -> None:
        while (job := self._next()) is not None:
            job.started = time.monotonic()
            self._running.append(job)
            self._pool.submit(self._run, job)
        if self._waiting and self._alarm is None:
            self._look_again()

    def _next(self) -> _Job[T] | None:
        now = time.monotonic()
        quick = sum(now - job.started < LONG_SECONDS for job in self._running)
        if quick >= self._threads or len(self._running) >= self._most:
            return None
        for tenant, jobs in self._waiting.items():
            own = [job for job in self._running if job.tenant == tenant]
            if sum(now - job.started >= LONG_SECONDS for job in own) >= _LONG_EACH:
                continue
            job = jobs.popleft()
            if jobs:
                self._waiting.move_to_end(tenant)
            else:
                del self._waiting[tenant]
            return job
        return None

    def _look_again(self) -> None:
        """Once what runs has become long."""
        now = time.monotonic()
        due = [wait for job in self._running if (wait := job.started + LONG_SECONDS - now) > 0]
        if not due:
            return
        self._alarm = threading.Timer(min(due), self._on_alarm)
        self._alarm.daemon = True
        self._alarm.start()

    def _on_alarm(self) -> None:
        with self._lock:
            self._alarm = None
            if not self._closed:
                self._start()

    def _run(self, job: _Job[T]) -> None:
        if job.future.set_running_or_notify_cancel():
            try:
                job.future.set_result(job.work())
            except BaseException as e:
                job.future.set_exception(e)
        with self._lock:
            self._running.remove(job)
            if not self._closed:
                self._start()
