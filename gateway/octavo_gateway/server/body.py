"""Reading requests' bodies: bounded in size and time for each, and in memory for all of them together."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from aiohttp import web

from octavo_gateway.protocol.errors import ApiError, invalid, request_timeout, unavailable

# So much of each body is not counted: ordinary requests are read while others fill the memory for large ones.
_UNCOUNTED = 64 * 1024


class BodyTimeout(Exception):
    """The body was not there in time."""


class BodyReader:
    """
    Args:
        limit: bytes of one body.
        seconds: from the head of a request to the end of its body.
        memory: bytes of large bodies that are being read or decoded.
    """

    def __init__(self, limit: int, seconds: float, memory: int) -> None:
        self._limit = limit
        self._seconds = seconds
        self._memory = memory
        self._held = 0

    @asynccontextmanager
    async def read(self, request: web.BaseRequest) -> AsyncIterator[bytes]:
        """The whole body. A declared length beyond the limit is refused before a byte is read."""
        encoding = request.headers.get("Content-Encoding", "identity")
        if encoding.lower() != "identity":
            raise ApiError(415, "A body must not be compressed.", code="unsupported_content_encoding")
        if request.headers.get("Transfer-Encoding", "chunked").strip().lower() != "chunked":
            raise ApiError(
                415, "Transfer-Encoding must be chunked alone.", code="unsupported_content_encoding"
            )
        expected = request.headers.get("Expect", "100-continue").strip().lower()
        if expected != "100-continue":
            raise ApiError(417, "Expect must be 100-continue.", code="expectation_failed")
        declared = request.content_length
        if declared is not None and declared > self._limit:
            raise self._too_large()
        if "Expect" in request.headers:
            await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
            request.writer.output_size = 0
        content, timer, held = request.content, None, 0
        if not content.is_eof():
            loop = asyncio.get_running_loop()
            timer = loop.call_later(self._seconds, content.set_exception, BodyTimeout())
        chunks: list[bytes] = []
        size = 0
        try:
            while chunk := await content.readany():
                size += len(chunk)
                if size > self._limit:
                    raise self._too_large()
                chunks.append(chunk)
                more = max(0, size - _UNCOUNTED) - held
                if self._held + more > self._memory:
                    raise unavailable("The server reads as many large bodies as it has memory for.")
                self._held += more
                held += more
            if timer is not None:
                timer.cancel()
            body = chunks[0] if len(chunks) == 1 else b"".join(chunks)
            del chunks
            yield body
        except BodyTimeout:
            raise request_timeout("The body", self._seconds) from None
        except web.RequestPayloadError:
            raise invalid(
                None, "The body cannot be read: it is cut off, or its chunks are malformed."
            ) from None
        finally:
            self._held -= held
            if timer is not None:
                timer.cancel()

    def _too_large(self) -> ApiError:
        return ApiError(413, f"The body is larger than {self._limit} bytes.", code="request_too_large")
