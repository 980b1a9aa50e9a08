"""From an HTTP request to its handler: ids, keys, routes, and one shape for every error."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from dataclasses import replace

from aiohttp import web

from octavo_gateway.api.caller import Caller
from octavo_gateway.api.ids import new_id
from octavo_gateway.protocol.errors import ApiError, internal_error, quoted
from octavo_gateway.server.auth import ApiKeys
from octavo_gateway.server.call import Call
from octavo_gateway.server.faults import log_fault
from octavo_gateway.server.handlers import Handlers
from octavo_gateway.server.request_log import RequestLog
from octavo_gateway.server.responses import SERVER, error_response
from octavo_gateway.server.state import Phase, ServerState

Handler = Callable[[Call], Awaitable[web.StreamResponse]]
_MAX_REQUEST_ID = 128


def routes(handlers: Handlers) -> dict[str, dict[str, Handler]]:
    """Path to method to handler. A path that ends in / takes everything below it."""
    h = handlers
    return {
        "/health": {"GET": h.health},
        "/ping": {"GET": h.health, "POST": h.health},
        "/ready": {"GET": h.ready},
        "/version": {"GET": h.version},
        "/metrics": {"GET": h.metrics},
        "/debug/cache": {"GET": h.debug_cache},
        "/debug/audit": {"GET": h.debug_audit},
        "/debug/decisions": {"GET": h.debug_decisions},
        "/openapi.json": {"GET": h.openapi},
        "/docs": {"GET": h.docs},
        "/v1/models": {"GET": h.list_models},
        "/v1/models/": {"GET": h.get_model},
        "/v1/chat/completions": {"POST": h.chat_completions},
        "/v1/completions": {"POST": h.completions},
        "/tokenize": {"POST": h.tokenize},
        "/detokenize": {"POST": h.detokenize},
    }


class Dispatcher:
    """The handler of aiohttp's low-level server."""

    def __init__(
        self, state: ServerState, handlers: Handlers, keys: ApiKeys, log: RequestLog | None = None
    ) -> None:
        self._log = log or RequestLog()
        self._state = state
        self._keys = keys
        self._routes = routes(handlers)

    async def __call__(self, request: web.BaseRequest) -> web.StreamResponse:
        given = request.headers.get("X-Request-Id", "")
        call = Call(request, given[:_MAX_REQUEST_ID] or new_id("req"), Caller(time.monotonic()))
        try:
            call.caller = replace(call.caller, tenant=self._keys.check(request))
            response = await self._dispatch(call)
        except ApiError as e:
            response = self._refusal(e)
        except (asyncio.CancelledError, ConnectionError):
            self._log.finished(call, "client gone")
            raise
        except Exception as e:
            log_fault(f"request {quoted(call.id, _MAX_REQUEST_ID)} failed", e)
            response = self._refusal(internal_error())
        if not response.prepared:
            response.headers["Server"] = SERVER
            response.headers["X-Request-Id"] = call.id
            if self._state.phase is Phase.DRAINING or response.status == 408:
                response.force_close()
        self._log.finished(call, str(response.status))
        return response

    async def _dispatch(self, call: Call) -> web.StreamResponse:
        path = call.request.path
        if call.request.method == "CONNECT":
            raise ApiError(
                405, "CONNECT is not possible: this server is no proxy.", code="method_not_allowed"
            )
        methods = self._routes.get(path)
        if methods is None and path.startswith("/v1/models/"):
            methods = self._routes["/v1/models/"]
        if methods is None or self._keys.hides(call.request):
            raise ApiError(
                404, f"There is no {quoted(path, 128)} here; GET /docs shows what there is.", code="not_found"
            )
        method = "GET" if call.request.method == "HEAD" else call.request.method
        handler = methods.get(method)
        if handler is None:
            return _method_not_allowed(call.request.method, path, methods)
        return await handler(call)

    def _refusal(self, error: ApiError) -> web.Response:
        self._state.metrics.refuse(error.status)
        return error_response(error)


def _method_not_allowed(method: str, path: str, methods: dict[str, Handler]) -> web.Response:
    allowed = ", ".join(sorted(methods))
    error = ApiError(
        405, f"{quoted(path, 128)} takes {allowed}, not {quoted(method, 16)}.", code="method_not_allowed"
    )
    response = error_response(error)
    response.headers["Allow"] = allowed
    return response
