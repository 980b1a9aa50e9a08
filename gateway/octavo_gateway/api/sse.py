"""Server-sent events as bytes."""

from __future__ import annotations

from octavo_gateway.protocol.errors import ApiError

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"
HEADERS = {
    "Content-Type": "text/event-stream; charset=utf-8",
    "Cache-Control": "no-cache",
    "X-Accel-Buffering": "no",
}


def event(json: bytes) -> bytes:
    return b"data: " + json + b"\n\n"


def error_event(error: ApiError) -> bytes:
    """What ends a stream whose headers are already out."""
    return event(error.encode()) + DONE
