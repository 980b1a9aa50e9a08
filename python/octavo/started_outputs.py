"""Outputs of a request that runs already, whether or not anybody has begun to read them."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable
from types import TracebackType

from octavo.outputs import RequestOutput


class StartedOutputs(AsyncGenerator[RequestOutput, None]):
    """A generator's outputs, with an end that also counts before the first of them was read.

    Python runs nothing of a generator that is closed or dropped before its first step, so its own ``finally`` cannot
    end the request.

    Args:
        outputs: the generator.
        abandon: ends the request; called when ``outputs`` is closed or dropped unread.
    """

    def __init__(self, outputs: AsyncGenerator[RequestOutput, None], abandon: Callable[[], None]) -> None:
        self._outputs = outputs
        self._abandon: Callable[[], None] | None = abandon

    async def asend(self, value: None) -> RequestOutput:
        self._abandon = None  # from here on the generator ends the request itself
        return await self._outputs.asend(value)

    async def athrow(
        self,
        typ: type[BaseException] | BaseException,
        val: BaseException | object = None,
        tb: TracebackType | None = None,
    ) -> RequestOutput:
        self._leave()
        if isinstance(typ, BaseException):
            return await self._outputs.athrow(typ)
        return await self._outputs.athrow(typ, val, tb)

    def _leave(self) -> None:
        abandon, self._abandon = self._abandon, None
        if abandon is not None:
            abandon()

    def __del__(self) -> None:
        self._leave()
