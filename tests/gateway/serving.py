"""A server in the test's own event loop, and clients for it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Coroutine
from contextlib import asynccontextmanager
from typing import Any, TypeVar

import aiohttp

from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.engine import Engine
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.api.text import TextWorkers
from octavo_gateway.server.auth import ApiKeys
from octavo_gateway.server.connection import HttpServer
from octavo_gateway.server.dispatch import Dispatcher
from octavo_gateway.server.handlers import Handlers
from octavo_gateway.server.lifecycle import bind
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.state import ServerState, Service

T = TypeVar("T")
MODEL = "tiny"
HELLO: dict[str, Any] = {"model": MODEL, "messages": [{"role": "user", "content": "Hi"}]}


def run(coroutine: Coroutine[Any, Any, T]) -> T:
    """Runs a test's coroutine on the loop of the server, within four minutes: the sanitizers are slow."""
    import uvloop

    async def bounded() -> T:
        return await asyncio.wait_for(coroutine, 240)

    return uvloop.run(bounded())


class Client:
    def __init__(
        self,
        session: aiohttp.ClientSession,
        base: str,
        state: ServerState,
        port: int,
        http: HttpServer,
        keys: ApiKeys,
    ):
        self._http = http
        self.keys = keys
        self.session = session
        self.base = base
        self.state = state
        self.port = port

    def open_connections(self) -> int:
        return len(self._http.connections)

    async def get(self, path: str, **kwargs: Any) -> tuple[int, Any, Any]:
        async with self.session.get(self.base + path, **kwargs) as r:
            return r.status, r.headers, await _body(r)

    async def post(self, path: str, body: Any, **kwargs: Any) -> tuple[int, Any, Any]:
        data = body if isinstance(body, bytes) else json.dumps(body).encode()
        async with self.session.post(self.base + path, data=data, **kwargs) as r:
            return r.status, r.headers, await _body(r)

    async def chat(self, **fields: Any) -> tuple[int, Any, Any]:
        return await self.post("/v1/chat/completions", {**HELLO, **fields})

    async def lines(self, **fields: Any) -> list[str]:
        """The non-empty lines of a streamed chat completion."""
        _, headers, text = await self.chat(stream=True, **fields)
        assert headers["Content-Type"].startswith("text/event-stream"), text
        return [line for line in text.split("\n") if line]

    async def chunks(self, **fields: Any) -> list[dict[str, Any]]:
        """The decoded chunks of a streamed chat completion, which must end with [DONE]."""
        lines = [line for line in await self.lines(**fields) if not line.startswith(":")]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


async def _body(response: aiohttp.ClientResponse) -> Any:
    text = await response.text()
    return json.loads(text) if response.content_type == "application/json" else text


@asynccontextmanager
async def serving(
    engine: Engine | None,
    *,
    api: dict[str, Any] | None = None,
    server: dict[str, Any] | None = None,
) -> AsyncIterator[Client]:
    """A server for `engine` (None: still loading) on a free port, and a client for it."""
    api_settings = ApiSettings(served_names=(MODEL, "alias/with-slash"), **(api or {}))
    settings = ServerSettings(port=0, **(server or {}))
    state = ServerState.of(settings)
    workers = TextWorkers(2)
    if engine is not None:
        service = Service(ApiContext(engine, api_settings, state.metrics, workers))
        await service.declare_prompts()
        state.loaded(service)
    listener = bind(settings)
    keys = ApiKeys.of(settings)
    http = HttpServer(Dispatcher(state, Handlers(state, api_settings, settings), keys), settings)
    port = listener.getsockname()[1]
    running = await asyncio.get_running_loop().create_server(http, sock=listener)
    try:
        async with aiohttp.ClientSession() as session:
            yield Client(session, f"http://127.0.0.1:{port}", state, port, http, keys)
    finally:
        running.close()
        http.pre_shutdown()
        await http.shutdown(0.5)
        workers.close()
