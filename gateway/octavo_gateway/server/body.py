"""Reading a request's body without ever holding more than its limit."""

from __future__ import annotations

from aiohttp import web

from octavo_gateway.protocol.errors import ApiError, invalid


async def read_body(request: web.BaseRequest, limit: int) -> bytes:
    """The whole body. A declared length beyond the limit is refused before a byte is read."""
    declared = request.content_length
    if declared is not None and declared > limit:
        raise _too_large(limit)
    if request.headers.get("Expect", "").lower() == "100-continue":
        await request.writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        request.writer.output_size = 0
    chunks: list[bytes] = []
    size = 0
    try:
        while chunk := await request.content.readany():
            size += len(chunk)
            if size > limit:
                raise _too_large(limit)
            chunks.append(chunk)
    except web.RequestPayloadError as e:
        raise invalid(None, f"The body cannot be read: {e}") from None
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def _too_large(limit: int) -> ApiError:
    return ApiError(413, f"The body is larger than {limit} bytes.", code="request_too_large")
