"""Ends what takes too long in another thread."""

from __future__ import annotations

import ctypes
import threading
import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

_TICK_SECONDS = 0.05
_IDLE_TICKS = 40  # after so many without work its thread ends


class OutOfTimeError(BaseException):
    """Raised within the work whose time is over; no ``except Exception`` on its way catches it."""


class _Work:
    def __init__(self, seconds: float) -> None:
        self.thread = threading.get_ident()
        self.seconds = seconds
        self.now: Callable[[], float] | None = None  # since the watchdog has seen it first
        self.end = 0.0
        self.ended = False

    def over(self) -> bool:
        if self.now is None:
            self.now = _thread_clock(self.thread)
            self.end = self.now() + self.seconds
        return self.now() > self.end


class Watchdog:
    """Bounds work in processor time of its thread, so that a busy or halted machine ends nothing."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._works: set[_Work] = set()
        self._watching = False

    def run(self, seconds: float, work: Callable[[], T]) -> T:
        """The result of `work`; OutOfTimeError is raised in it, between two bytecodes, once it has taken so long."""
        watched = _Work(seconds)
        with self._lock:
            self._works.add(watched)
            if not self._watching:
                self._watching = True
                threading.Thread(target=self._watch, name="octavo-watchdog", daemon=True).start()
        try:
            return work()
        finally:
            self._leave(watched)

    def _leave(self, work: _Work) -> None:
        with self._lock:
            self._works.discard(work)
            if work.ended:
                _interrupt(work.thread, None)  # it may not have arrived yet
        if work.ended:
            raise OutOfTimeError

    def _watch(self) -> None:
        idle = 0
        while True:
            time.sleep(_TICK_SECONDS)
            with self._lock:
                idle = 0 if self._works else idle + 1
                if idle > _IDLE_TICKS:
                    self._watching = False
                    return
                for work in [work for work in self._works if work.over()]:
                    self._works.discard(work)
                    work.ended = True
                    _interrupt(work.thread, OutOfTimeError)


def _thread_clock(thread: int) -> Callable[[], float]:
    find = getattr(time, "pthread_getcpuclockid", None)
    if find is None:
        return time.monotonic
    clock = find(thread)
    return lambda: time.clock_gettime(clock)


def _interrupt(thread: int, error: type[BaseException] | None) -> None:
    ctypes.pythonapi.PyThreadState_SetAsyncExc(
        ctypes.c_ulong(thread), None if error is None else ctypes.py_object(error)
    )
