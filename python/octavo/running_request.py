"""One request of an ``AsyncEngine``, for as long as somebody may read it."""

from __future__ import annotations

from collections.abc import AsyncGenerator
from types import TracebackType
from weakref import WeakValueDictionary

from octavo.errors import InvalidArgumentError
from octavo.output_builder import OutputBuilder
from octavo.outputs import RequestOutput
from octavo.sampling_params import RequestOutputKind
from octavo.token_stream import TokenStream


class RunningRequest:
    """A name in use, from before its prompt is tokenized until its outputs are read or dropped.

    Only who reads holds it, so it ends with them, also where Python runs nothing of their generator any more: one that
    is dropped before its first step, or whose loop was closed.

    Args:
        running: the names in use; they do not keep a request alive.

    Raises:
        InvalidArgumentError: the name is in use.
    """

    def __init__(self, running: WeakValueDictionary[str, RunningRequest], name: str) -> None:
        self.name = name
        self._running = running
        self._stream: TokenStream | None = None
        self._builder: OutputBuilder | None = None
        self._aborted = False
        other = running.get(name)
        if other is not None and not other.lost:
            raise InvalidArgumentError(
                f"request_id {name!r} is in use by a request that runs", param="request_id"
            )
        running[name] = self

    @property
    def lost(self) -> bool:
        """Whether the loop it was to be read on is closed."""
        return self._stream is not None and self._stream.lost

    @property
    def output(self) -> RequestOutput | None:
        """Everything so far; None while its prompt is tokenized."""
        return None if self._builder is None else self._builder.output()

    def start(
        self, stream: TokenStream, builder: OutputBuilder, kind: RequestOutputKind
    ) -> AsyncGenerator[RequestOutput, None]:
        """The engine has it: what ``stream`` brings from here on. Leaving ends the request."""
        self._stream, self._builder = stream, builder
        if self._aborted:
            stream.cancel()
        return self._outputs(stream, builder, kind)

    async def _outputs(
        self, stream: TokenStream, builder: OutputBuilder, kind: RequestOutputKind
    ) -> AsyncGenerator[RequestOutput, None]:
        with self:
            while not builder.finished:
                for delta in await stream.next():
                    builder.add(delta)
                if builder.error is not None:
                    raise builder.error
                if kind is RequestOutputKind.DELTA:
                    yield builder.take_new()
                elif kind is RequestOutputKind.CUMULATIVE or builder.finished:
                    yield builder.snapshot()

    def abort(self) -> None:
        """End it early, now or once it starts."""
        self._aborted = True
        if self._stream is not None:
            self._stream.cancel()

    def end(self) -> None:
        """Give up name and request."""
        if self._running.get(self.name) is self:
            del self._running[self.name]
        self.abort()

    def __enter__(self) -> RunningRequest:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.end()

    def __del__(self) -> None:
        self.abort()
