"""API keys. With keys configured every route needs one, but those that a probe asks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from aiohttp import web

from octavo_gateway.protocol.errors import invalid_api_key

OPEN_PATHS = frozenset({"/health", "/ready", "/ping"})


class ApiKeys:
    """Compares digests of equal length, each key every time, so that the time says nothing about them."""

    def __init__(self, keys: Sequence[str]) -> None:
        self._digests = [_digest(key) for key in keys]

    def check(self, request: web.BaseRequest) -> None:
        if not self._digests or request.path in OPEN_PATHS:
            return
        scheme, _, given = request.headers.get("Authorization", "").partition(" ")
        digest = _digest(given.strip())
        found = False
        for known in self._digests:
            found |= hmac.compare_digest(known, digest)
        if not found or scheme.lower() != "bearer":
            raise invalid_api_key()


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
