"""Answers that are not streams."""

from __future__ import annotations

from collections.abc import Mapping

from aiohttp import web

from octavo_gateway.protocol.errors import ApiError

SERVER = "octavo"  # the header of every answer, in place of the libraries and their versions


def json_response(body: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> web.Response:
    return web.Response(body=body, status=status, headers=headers, content_type="application/json")


def error_response(error: ApiError) -> web.Response:
    headers = {}
    if error.retry_after is not None:
        headers["Retry-After"] = str(error.retry_after)
    if error.status == 401:
        headers["WWW-Authenticate"] = "Bearer"
    return json_response(error.encode(), error.status, headers)
