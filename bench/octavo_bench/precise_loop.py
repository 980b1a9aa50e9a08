"""An event loop whose timers are exact to microseconds.

The selectors of asyncio and of uvloop wait whole milliseconds, which is as much as what a load client measures.
"""

from __future__ import annotations

import asyncio
import select
import selectors
import sys
from collections.abc import Callable, Coroutine
from typing import Any, TypeVar

T = TypeVar("T")


if sys.platform == "linux":

    class PreciseSelector(selectors.EpollSelector):
        """Waits for the epoll descriptor with ``select``, whose timeout has microseconds, then asks epoll."""

        def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
            if timeout is not None and timeout > 0:
                select.select([self.fileno()], [], [], timeout)
                timeout = 0
            return super().select(timeout)

    def _new_loop() -> asyncio.AbstractEventLoop:
        return asyncio.SelectorEventLoop(PreciseSelector())

    LOOP_FACTORY: Callable[[], asyncio.AbstractEventLoop] = _new_loop
else:
    LOOP_FACTORY = asyncio.new_event_loop


def run(main: Coroutine[Any, Any, T]) -> T:
    """``asyncio.run`` on such a loop."""
    if sys.version_info >= (3, 11):
        with asyncio.Runner(loop_factory=LOOP_FACTORY) as runner:
            return runner.run(main)
    loop = LOOP_FACTORY()
    try:
        return loop.run_until_complete(main)
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.close()


async def sleep_until(due: float, clock: Callable[[], float]) -> None:
    """Returns when ``clock`` has reached ``due``; at once, without a turn of the loop, when it already has."""
    left = due - clock()
    if left > 0:
        await asyncio.sleep(left)
