"""Server-sent events on their way to one client: idle comments, and a bound on what waits for a slow one."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass

from aiohttp import web
from aiohttp.http import StreamWriter

from octavo_gateway.api import sse
from octavo_gateway.api.answer import Answer
from octavo_gateway.api.plain_text import PlainText

_log = logging.getLogger("octavo.gateway.stream")
_DRAIN_CHECK_SECONDS = 0.1


class SlowReader(Exception):
    """The client does not read what it asked for."""


@dataclass(frozen=True)
class StreamLimits:
    keep_alive_seconds: float  # 0: no comments
    max_backlog: int  # steps that may wait while the socket is full
    stalled_seconds: float  # how long the socket may stay full


class EventWriter:
    """Writes events as they come and a comment when none came for a while.

    The socket's buffer is bounded by flow control; while it is full nothing more is taken from the engine's side,
    where steps pile up to `max_backlog` (and make one chunk when the client reads on). While all that was written is
    with the system and what follows is plain text, the engine writes it by itself.
    """

    def __init__(
        self,
        transport: asyncio.Transport,
        writer: StreamWriter,
        limits: StreamLimits,
        backlog: Callable[[], int],
        plain: PlainText | None,
    ) -> None:
        self._transport = transport
        self._writer = writer
        self._limits = limits
        self._backlog = backlog
        self._fd = _socket_fd(transport)
        self._plain = plain if self._fd is not None else None
        self._direct = False  # whether the engine writes
        self._high_water = transport.get_write_buffer_limits()[1]
        self._framed = False  # whether chunks may be sent without the writer's help: once the headers are out
        self._loop = asyncio.get_running_loop()
        self._last_write = self._loop.time()
        self._timer: asyncio.TimerHandle | None = None
        self._comment: asyncio.Task[None] | None = None
        self._arm(limits.keep_alive_seconds)

    async def write(self, data: bytes) -> None:
        self._direct = False  # else there would be nothing to write
        if self._framed:
            self._send(data)
        else:  # with the headers, in one packet
            await self._writer.write(data, drain=False)
            self._framed = self._writer.chunked
        self._wrote()
        if self._transport.get_write_buffer_size() > self._high_water:
            await self._drain()

    def _send(self, data: bytes) -> None:
        """One chunk of HTTP/1.1, straight to the transport: the general way costs three calls more per token."""
        if self._transport.is_closing():
            raise ConnectionResetError("the client is gone")
        self._transport.write(b"%x\r\n%b\r\n" % (len(data), data))

    def _wrote(self) -> None:
        self._last_write = self._loop.time()
        if self._plain is not None:
            self._loop.call_soon(self._go_direct)  # once the transport has handed on what it was given

    def _go_direct(self) -> None:
        if self._plain is None or self._fd is None or self._direct or not self._framed:
            return
        if self._comment is not None and not self._comment.done():
            return  # it comes first
        if not self._transport.is_closing() and not self._transport.get_write_buffer_size():
            self._direct = self._plain.send_directly(self._fd, self._write_rest)

    def _write_rest(self, data: bytes) -> None:
        """What the socket did not take of the engine's last chunk."""
        self._direct = False
        if not self._transport.is_closing():
            self._transport.write(data)

    def _take_back(self) -> bool:
        """The engine writes no more. False: it had stopped by itself; what it could not write is on its way here."""
        if not self._direct or self._plain is None:
            return True
        self._direct = False
        last = self._plain.take_back()
        if last is not None:
            self._last_write = max(self._last_write, last)
        return last is not None

    def close(self) -> None:
        self._take_back()
        self._plain = None
        if self._timer is not None:
            self._timer.cancel()
        if self._comment is not None:
            self._comment.cancel()

    def _arm(self, seconds: float) -> None:
        if self._limits.keep_alive_seconds > 0:
            self._timer = self._loop.call_later(seconds, self._tick)

    def _tick(self) -> None:
        interval = self._limits.keep_alive_seconds
        if not self._take_back():
            self._arm(interval)
            return
        idle = self._loop.time() - self._last_write
        if idle < interval - 1e-3:
            self._go_direct()
            self._arm(interval - idle)
            return
        if self._transport.get_write_buffer_size() <= self._high_water:
            self._comment = self._loop.create_task(self._write_comment())
        self._arm(interval)

    async def _write_comment(self) -> None:
        try:
            await self._writer.write(sse.KEEP_ALIVE, drain=False)
        except ConnectionError:
            return  # The handler is being cancelled.
        self._wrote()

    async def _drain(self) -> None:
        drained = asyncio.ensure_future(self._writer.drain())
        deadline = self._loop.time() + self._limits.stalled_seconds
        try:
            while not drained.done():
                await asyncio.wait((drained,), timeout=_DRAIN_CHECK_SECONDS)
                late = self._loop.time() > deadline or self._backlog() > self._limits.max_backlog
                if late and not drained.done():
                    raise SlowReader
            drained.result()
        finally:
            drained.cancel()


def _socket_fd(transport: asyncio.Transport) -> int | None:
    """The socket to which bytes may be written as they are; None: there is none, or they would be encrypted."""
    socket = transport.get_extra_info("socket")
    return None if socket is None or transport.get_extra_info("sslcontext") is not None else socket.fileno()


async def stream_events(
    request: web.BaseRequest,
    response: web.StreamResponse,
    answer: Answer,
    limits: StreamLimits,
) -> web.StreamResponse:
    """Sends an answer's events as the body of `response`. A reader that stops reading loses its connection."""
    await response.prepare(request)
    transport, body = request.transport, request.writer
    if transport is None:
        return response
    assert isinstance(body, StreamWriter)
    writer = EventWriter(transport, body, limits, lambda: answer.backlog, answer.plain_text())
    try:
        async for data in answer.events():
            await writer.write(data)
    except SlowReader:
        _log.warning("a client stopped reading its stream; its request is aborted")
        transport.abort()
        return response
    except ConnectionError:
        return response
    finally:
        writer.close()
    ending = asyncio.get_running_loop().call_later(limits.stalled_seconds, transport.abort)
    try:
        await response.write_eof()
    finally:
        ending.cancel()
    return response
