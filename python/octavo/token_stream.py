"""Deltas on their way from the engine to an event loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from octavo.errors import EngineDeadError

if TYPE_CHECKING:
    from octavo import _engine
    from octavo.fork_point import ForkPoint
    from octavo.loading import LoadedModel
    from octavo.sampling_params import SamplingParams

MAX_BACKLOG = 4096


class TokenStream:
    """The deltas of one request, in order. To be read by one task of the loop it was opened on.

    Attributes:
        id: the engine's number for the request.
    """

    def __init__(self, reader: LoopReader, request: int, choices: int, max_backlog: int) -> None:
        self.id = request
        self._reader = reader
        self._unfinished = choices
        self._max_backlog = max_backlog
        self._deltas: deque[_engine.Delta] = deque()
        self._waiter: asyncio.Future[None] | None = None
        self._overrun = False
        self._write_rest: Callable[[bytes], None] | None = None  # while texts are sent directly

    @property
    def backlog(self) -> int:
        """How many deltas wait to be read."""
        return len(self._deltas)

    @property
    def finished(self) -> bool:
        """Whether the engine has ended the request; what it left may still wait to be read."""
        return self._unfinished == 0

    @property
    def lost(self) -> bool:
        """Whether nothing can come any more, because the loop was closed or the engine shut down."""
        return self._reader.closed is not None

    async def next(self) -> Sequence[_engine.Delta]:
        """Every delta that waits, at least one.

        Raises:
            EngineDeadError: the request has ended and everything has been read, its loop was closed, or the engine
                was shut down.
        """
        while not self._deltas:
            if why := "the request has ended" if self.finished else self._reader.closed:
                raise EngineDeadError(why, code="shutdown", param="engine")
            self._waiter = self._reader.loop.create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        deltas = list(self._deltas)
        self._deltas.clear()
        return deltas

    def cancel(self) -> None:
        """Give the request up: its blocks are free within a step. Harmless once it or the engine has ended.

        A last delta with finish "abort" still comes for each choice.
        """
        if not self.finished:
            self._reader.cancel(self.id)

    def send_directly(self, fd: int, head: bytes, tail: bytes, write_rest: Callable[[bytes], None]) -> bool:
        """Let the engine write each further text to a socket by itself, without Python.

        Every delta still comes, but those with ``sent`` some 0.25 s late, and their text is to be written by nobody
        else. It lasts until the request finishes or the socket does not take a text at once.

        Args:
            fd: the socket; what was written to it before is on its way.
            head, tail: what each text, as a JSON string without quotes, stands between in a chunk of HTTP/1.1.
            write_rest: called on the loop with what the socket did not take of a text.

        Returns:
            False where the request has several choices, has ended, or has deltas that nobody has read: then nothing
            has changed.
        """
        waiting = self._waiter is not None and not self._waiter.done() and not self._deltas
        if not waiting or self._unfinished != 1 or not self._reader.send_directly(self.id, fd, head, tail):
            return False
        self._write_rest = write_rest
        return True

    def take_back(self) -> float | None:
        """End ``send_directly``: ``time.monotonic()`` of the last text, None where it had ended by itself."""
        return self._reader.take_back(self.id)

    def push(self, delta: _engine.Delta) -> None:
        """Called by the reader."""
        if delta.rest and self._write_rest is not None:
            self._write_rest(delta.rest)
        if delta.finish is not None:
            self._unfinished -= 1
        elif delta.sent:
            pass  # its reader keeps up
        elif len(self._deltas) >= self._max_backlog or self._overrun:
            # Nobody reads: this request alone is given up. What was lost is never followed by later text.
            self._overrun = True
            self.cancel()
            return
        self._deltas.append(delta)
        self.wake()

    def wake(self) -> None:
        """Let a waiting reader look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class LoopReader:
    """One event loop's channel to the engine: a single file descriptor wakes the loop for all its requests.

    Args:
        loop: the loop that the streams are read on.

    Attributes:
        closed: why nothing is read any more, None while the loop is listened on.
    """

    def __init__(self, model: LoadedModel, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self.closed: str | None = None
        self._model = model
        self._channel = model.engine.open_channel()
        self._streams: dict[int, TokenStream] = {}
        # Held from submit to entry in the table, so that a request's first delta finds its stream.
        self._lock = threading.Lock()
        loop.add_reader(self._channel.fd, _Readable(self))

    def submit(
        self,
        ids: Sequence[int],
        params: SamplingParams,
        *,
        namespace: int,
        priority: int,
        max_backlog: int,
        tenant: int = 0,
        shared_tokens: int = 0,
    ) -> TokenStream:
        """Hand a request to the engine. Thread-safe."""
        with self._lock:
            request = self._model.submit(
                ids,
                params,
                self._channel,
                namespace=namespace,
                priority=priority,
                tenant=tenant,
                shared_tokens=shared_tokens,
            )
            stream = self._streams[request] = TokenStream(self, request, params.n, max_backlog)
        return stream

    def fork(self, point: ForkPoint, *, max_backlog: int) -> TokenStream:
        """Continue a request a second time. Thread-safe."""
        with self._lock:
            fork = self._model.fork(point, self._channel)
            stream = self._streams[fork] = TokenStream(self, fork, point.params.n, max_backlog)
        return stream

    def cancel(self, request: int) -> None:
        if not self._model.is_alive:  # a shutdown has ended it
            return
        with contextlib.suppress(EngineDeadError):  # one that began just now
            self._model.engine.cancel(request)

    def send_directly(self, request: int, fd: int, head: bytes, tail: bytes) -> bool:
        return self.closed is None and self._channel.send_directly(request, fd, head, tail)

    def take_back(self, request: int) -> float | None:
        return self._channel.take_back(request)

    @property
    def num_streams(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    def take_in(self) -> None:
        """Give each delta that has come to its stream. Called on the loop."""
        with self._lock:
            deltas = self._channel.drain()
        for delta in deltas:
            stream = self._streams.get(delta.id)
            if stream is None:
                continue
            stream.push(delta)
            if stream.finished:
                del self._streams[delta.id]

    def close(self) -> None:
        """Abort the requests that run, at a shutdown. To be called in the loop's thread, or when it is closed."""
        if self.closed is None and not self.loop.is_closed():
            self.take_in()  # also the rest of a text that a socket has the beginning of
        self.end("the engine has been shut down")
        if not self.loop.is_closed():
            self.loop.remove_reader(self._channel.fd)

    def end(self, why: str) -> None:
        """Abort the requests that run; ``why`` is what their readers are told."""
        if self.closed is not None:
            return
        self.closed = why
        if self._model.is_alive:
            self._model.engine.close_channel(self._channel)
        for stream in self._streams.values():
            if not self.loop.is_closed():
                stream.wake()
        self._streams.clear()


class _Readable:
    """What the loop calls. Nobody else holds it, and a loop lets go of what it calls when it is closed."""

    def __init__(self, reader: LoopReader) -> None:
        self._reader = reader

    def __call__(self) -> None:
        self._reader.take_in()

    def __del__(self) -> None:
        self._reader.end("the event loop was closed on which the request was to be read")
