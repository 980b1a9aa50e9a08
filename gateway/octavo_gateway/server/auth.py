"""API keys. With keys configured every route needs one, but those that a probe asks."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Sequence

from aiohttp import web

from octavo_gateway.protocol.errors import invalid_api_key
from octavo_gateway.server.settings import ServerSettings

OPEN_PATHS = frozenset({"/health", "/ready", "/ping"})
_DEBUG_PATHS = "/debug/"


class ApiKeys:
    """Compares digests of equal length, each key every time, so that the time says nothing about them.

    Args:
        keys: what requests need; none: nothing is needed.
        admin_keys: what else sees the routes for debugging, on top of what `keys` allow.
        open_debug: those routes are there for whoever may send requests.
    """

    def __init__(
        self, keys: Sequence[str], admin_keys: Sequence[str] = (), *, open_debug: bool = False
    ) -> None:
        self._digests = [_digest(key) for key in keys]
        self._admin = [_digest(key) for key in admin_keys]
        self._open_debug = open_debug

    @classmethod
    def of(cls, settings: ServerSettings) -> ApiKeys:
        return cls(settings.api_keys, settings.admin_keys, open_debug=settings.debug_cache)

    def check(self, request: web.BaseRequest) -> None:
        if not self._digests or request.path in OPEN_PATHS or self._is_admin(request):
            return
        if not _holds(request, self._digests):
            raise invalid_api_key()

    def hides(self, request: web.BaseRequest) -> bool:
        """Whether this route does not exist for this client."""
        if not request.path.startswith(_DEBUG_PATHS):
            return False
        return not self._open_debug and not self._is_admin(request)

    def _is_admin(self, request: web.BaseRequest) -> bool:
        return request.path.startswith(_DEBUG_PATHS) and _holds(request, self._admin)


def _holds(request: web.BaseRequest, digests: Sequence[bytes]) -> bool:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    digest = _digest(given.strip())
    found = False
    for known in digests:
        found |= hmac.compare_digest(known, digest)
    return found and scheme.lower() == "bearer"


def _digest(key: str) -> bytes:
    return hashlib.sha256(key.encode("utf-8", "surrogateescape")).digest()
