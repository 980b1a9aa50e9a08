"""Who may ask what. With keys configured every route needs one, but those that a probe asks."""

from __future__ import annotations

from aiohttp import web

from octavo_gateway.protocol.errors import admin_key_needed, invalid_api_key
from octavo_gateway.server.keys import KeyRing
from octavo_gateway.server.settings import ServerSettings

OPEN_PATHS = frozenset({"/health", "/ready", "/ping"})
_DEBUG_PATHS = "/debug/"
_METRICS = "/metrics"  # counts for all tenants together


class ApiKeys:
    """Checks the key of a request.

    Args:
        ring: what requests need; empty: nothing is needed.
        admins: what else sees /metrics and the routes for debugging, on top of what `ring` allows.
        open_debug: these are there for whoever may send requests.
    """

    def __init__(self, ring: KeyRing, admins: KeyRing, *, open_debug: bool = False) -> None:
        self.ring = ring
        self._admins = admins
        self._open_debug = open_debug

    @classmethod
    def of(cls, settings: ServerSettings) -> ApiKeys:
        ring = KeyRing(settings.api_keys, settings.named_keys, settings.key_file)
        return cls(ring, KeyRing(settings.admin_keys), open_debug=settings.debug_cache)

    def check(self, request: web.BaseRequest) -> str | None:
        """The tenant that asks; None where no key is needed, or for an admin.

        Raises ApiError: 401 without a key that is known; 403 where it would show what other tenants do.
        """
        if not self.ring or request.path in OPEN_PATHS or self._is_admin(request):
            return None
        tenant = _tenant(request, self.ring)
        if tenant is None:
            raise invalid_api_key()
        if request.path == _METRICS and self.ring.tenants > 1 and not self._open_debug:
            raise admin_key_needed(_METRICS)
        return tenant

    def hides(self, request: web.BaseRequest) -> bool:
        """Whether this route does not exist for this client."""
        if not request.path.startswith(_DEBUG_PATHS):
            return False
        return not self._open_debug and not self._is_admin(request)

    def _is_admin(self, request: web.BaseRequest) -> bool:
        of_admins = request.path == _METRICS or request.path.startswith(_DEBUG_PATHS)
        return of_admins and _tenant(request, self._admins) is not None


def _tenant(request: web.BaseRequest, ring: KeyRing) -> str | None:
    scheme, _, given = request.headers.get("Authorization", "").partition(" ")
    tenant = ring.tenant_of(given.strip())
    return tenant if scheme.lower() == "bearer" else None
