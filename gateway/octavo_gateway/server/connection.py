"""One client's connection: bounds in time and number, and one shape for errors below HTTP."""

from __future__ import annotations

import asyncio
import logging
import sys
from typing import Any, cast

from aiohttp import web
from aiohttp.http import HttpVersion11
from aiohttp.http_exceptions import (
    BadStatusLine,
    ContentLengthError,
    HttpProcessingError,
    InvalidHeader,
    LineTooLong,
    TransferEncodingError,
)

from octavo_gateway.api.ids import new_id
from octavo_gateway.protocol.errors import (
    ApiError,
    internal_error,
    invalid,
    request_timeout,
    unavailable,
)
from octavo_gateway.server.body import BodyTimeout
from octavo_gateway.server.dispatch import Dispatcher
from octavo_gateway.server.faults import log_fault
from octavo_gateway.server.responses import SERVER, error_response
from octavo_gateway.server.settings import ServerSettings

_log = logging.getLogger("octavo.gateway")

_LINGERING_SECONDS = 2.0  # how long the rest of a refused body is read before the connection closes
_FAULTS: tuple[tuple[type[BaseException], str], ...] = (
    (LineTooLong, "a line of its head is too long"),
    (InvalidHeader, "a header is malformed"),
    (BadStatusLine, "its first line is malformed"),
    (TransferEncodingError, "a chunk of its body is malformed"),
    (ContentLengthError, "its body is shorter than Content-Length says"),
)
_THEIR_FAULTS = (HttpProcessingError, web.RequestPayloadError, BodyTimeout, ConnectionError)


class HttpServer(web.Server):
    """Makes a connection handler per client; a handler is cancelled when its client goes."""

    def __init__(self, dispatcher: Dispatcher, settings: ServerSettings) -> None:
        super().__init__(dispatcher, handler_cancellation=True)
        self._settings = settings

    def __call__(self) -> asyncio.Protocol:  # type: ignore[override]
        if len(self.connections) >= self._settings.max_connections:
            return _Surplus()
        return _Connection(self, self._settings)


class _Connection(web.RequestHandler):
    """aiohttp's protocol with limits of ours."""

    def __init__(self, server: HttpServer, settings: ServerSettings) -> None:
        super().__init__(
            server,
            loop=asyncio.get_running_loop(),
            keepalive_timeout=settings.idle_seconds,
            lingering_time=_LINGERING_SECONDS,
            auto_decompress=False,
        )
        self.access_logger = None
        self._header_seconds = settings.header_seconds
        self._stalled_seconds = settings.stalled_reader_seconds
        self._header_timer: asyncio.TimerHandle | None = None

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        # While the handler waits for a message and has none, what has come is the beginning of a head.
        in_head = self._waiter is not None and not self._waiter.done()
        if not in_head:
            self._stop_header_timer()
        elif self._header_timer is None:
            self._header_timer = self._loop.call_later(self._header_seconds, self._head_is_late)

    def connection_lost(self, exc: BaseException | None) -> None:
        self._stop_header_timer()
        super().connection_lost(exc)

    def _stop_header_timer(self) -> None:
        if self._header_timer is not None:
            self._header_timer.cancel()
            self._header_timer = None

    def _head_is_late(self) -> None:
        if self.transport is not None:
            error = request_timeout("The request's head", self._header_seconds)
            self.transport.write(_raw_answer(error))
        self.force_close()

    async def finish_response(self, *args: Any) -> tuple[web.StreamResponse, bool]:
        """A client that does not read its answer loses the connection."""
        transport = self.transport
        if transport is None:
            return await super().finish_response(*args)
        timer = self._loop.call_later(self._stalled_seconds, transport.abort)
        try:
            return await super().finish_response(*args)
        finally:
            timer.cancel()

    def log_exception(self, *args: Any, **kwargs: Any) -> None:
        fault = kwargs.get("exc_info") or sys.exc_info()[1]
        if isinstance(fault, BaseException) and not isinstance(fault, _THEIR_FAULTS):
            log_fault("the connection failed", fault)

    def handle_error(
        self,
        request: web.BaseRequest,
        status: int = 500,
        exc: BaseException | None = None,
        message: str | None = None,
    ) -> web.StreamResponse:
        if request.writer.output_size > 0:
            raise ConnectionError("the answer is already under way")
        if status < 500:
            error = invalid(None, f"The request is not valid HTTP: {_fault_of(exc)}.")
            error.status = status
        else:
            if exc is not None:
                log_fault("the connection failed", exc)
            error = internal_error()
        response = error_response(error)
        response.headers["Server"] = SERVER
        response.headers["X-Request-Id"] = new_id("req")
        request._version = HttpVersion11  # where nothing could be read aiohttp takes an older one
        response.force_close()
        return response


def _fault_of(error: BaseException | None) -> str:
    """What is wrong, in words that hold nothing of the input."""
    return next((words for kind, words in _FAULTS if isinstance(error, kind)), "its head is malformed")


class _Surplus(asyncio.Protocol):
    """A connection beyond the limit: an answer that says so, without reading, then the end."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport = cast("asyncio.Transport", transport)
        transport.write(_raw_answer(unavailable("The server has as many connections as it takes.")))
        transport.write_eof()
        # What the client has sent is thrown away for a moment: a close before that would take the answer with it.
        self._timer = asyncio.get_running_loop().call_later(_LINGERING_SECONDS, transport.abort)

    def eof_received(self) -> None:
        self._transport.close()

    def connection_lost(self, exc: BaseException | None) -> None:
        self._timer.cancel()


def _raw_answer(error: ApiError) -> bytes:
    """A whole answer for a connection on which there is no request."""
    response = error_response(error)
    body = error.encode()
    lines = [f"HTTP/1.1 {response.status} {response.reason}", f"Server: {SERVER}", "Connection: close"]
    lines += [f"{name}: {value}" for name, value in response.headers.items() if name != "Content-Length"]
    return "\r\n".join([*lines, f"Content-Length: {len(body)}", "", ""]).encode() + body
