"""One method per route: body in, answer out. Errors leave as ApiError."""

from __future__ import annotations

from typing import Any, TypeVar

import msgspec
from aiohttp import web

from octavo_gateway.api import models, sse, tokens
from octavo_gateway.api.answer import Answer
from octavo_gateway.api.context import ApiContext
from octavo_gateway.api.deadlines import Deadlines
from octavo_gateway.api.engine_view import cache_audit, cache_snapshot, scheduler_decisions
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.protocol.chat import ChatCompletionRequest
from octavo_gateway.protocol.completions import CompletionRequest
from octavo_gateway.protocol.decode import decode
from octavo_gateway.protocol.errors import unavailable
from octavo_gateway.protocol.tokens import DetokenizeRequest, TokenizeRequest
from octavo_gateway.server.body import BodyReader
from octavo_gateway.server.call import Call
from octavo_gateway.server.event_stream import StreamLimits, stream_events
from octavo_gateway.server.responses import SERVER, json_response
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.state import ServerState, Service

T = TypeVar("T", bound=msgspec.Struct)

# A body beyond this is decoded in a tokenizer thread instead of on the event loop.
_LARGE_BODY = 64 * 1024


class Handlers:
    def __init__(self, state: ServerState, api: ApiSettings, server: ServerSettings) -> None:
        self._state = state
        self._api = api
        self._server = server
        self._limits = StreamLimits(
            keep_alive_seconds=api.keep_alive_seconds,
            max_backlog=server.max_stream_backlog,
            stalled_seconds=server.stalled_reader_seconds,
        )
        self._bodies = BodyReader(server.max_body_bytes, server.body_seconds, server.max_bodies_bytes)

    async def health(self, call: Call) -> web.StreamResponse:
        """The process lives."""
        return json_response(b'{"status":"ok"}')

    async def ready(self, call: Call) -> web.StreamResponse:
        """The model is loaded and makes progress."""
        reason = self._state.not_ready_because()
        if reason is not None:
            raise unavailable(f"Not ready: {reason}.")
        return json_response(b'{"status":"ready"}')

    async def version(self, call: Call) -> web.StreamResponse:
        from octavo import __version__

        return json_response(msgspec.json.encode({"version": __version__}))

    async def metrics(self, call: Call) -> web.StreamResponse:
        from octavo_gateway.api import exposition

        context = self._context()
        text = exposition.render(
            context.model_name, context.engine.stats(), context.engine.model.engine_info, self._state.metrics
        )
        return web.Response(body=text, headers={"Content-Type": exposition.CONTENT_TYPE})

    async def debug_cache(self, call: Call) -> web.StreamResponse:
        return json_response(msgspec.json.encode(await cache_snapshot(self._context(), self._state.unread())))

    async def debug_audit(self, call: Call) -> web.StreamResponse:
        return json_response(msgspec.json.encode(await cache_audit(self._context())))

    async def debug_decisions(self, call: Call) -> web.StreamResponse:
        return json_response(msgspec.json.encode(scheduler_decisions(self._context())))

    async def openapi(self, call: Call) -> web.StreamResponse:
        return json_response(msgspec.json.encode(self._document()))

    async def docs(self, call: Call) -> web.StreamResponse:
        from octavo_gateway.openapi.page import page

        headers = {"Content-Security-Policy": "default-src 'none'; style-src 'unsafe-inline'"}
        return web.Response(text=page(self._document()), content_type="text/html", headers=headers)

    def _context(self) -> ApiContext:
        """The loaded model, for those who only look; in every phase."""
        service = self._state.engine_service
        if service is None:
            raise unavailable("The model is being loaded.")
        return service.context

    def _document(self) -> dict[str, Any]:
        from octavo_gateway.openapi.document import document

        return document(self._context(), keyed=self._server.keyed)

    async def list_models(self, call: Call) -> web.StreamResponse:
        return json_response(msgspec.json.encode(models.list_models(self._state.service().context)))

    async def get_model(self, call: Call) -> web.StreamResponse:
        name = call.request.path.removeprefix("/v1/models/")
        return json_response(msgspec.json.encode(models.get_model(self._state.service().context, name)))

    async def tokenize(self, call: Call) -> web.StreamResponse:
        service, request = await self._read(call, TokenizeRequest)
        with self._state.accept(call.caller.tenant):
            deadlines = Deadlines.of_text(call.caller, service.context.settings)
            answer = await deadlines.kept(tokens.tokenize(service.context, service.chat, request))
        return json_response(msgspec.json.encode(answer))

    async def detokenize(self, call: Call) -> web.StreamResponse:
        service, request = await self._read(call, DetokenizeRequest)
        with self._state.accept(call.caller.tenant):
            deadlines = Deadlines.of_text(call.caller, service.context.settings)
            answer = await deadlines.kept(tokens.detokenize(service.context, request))
        return json_response(msgspec.json.encode(answer))

    async def chat_completions(self, call: Call) -> web.StreamResponse:
        service, request = await self._read(call, ChatCompletionRequest)
        with self._state.accept(call.caller.tenant):
            answer = await service.chat.start(request, call.caller)
            return await self._answer(call, answer, bool(request.stream))

    async def completions(self, call: Call) -> web.StreamResponse:
        service, request = await self._read(call, CompletionRequest)
        with self._state.accept(call.caller.tenant, service.completions.check_prompts(request)):
            answer = await service.completions.start(request, call.caller)
            return await self._answer(call, answer, bool(request.stream))

    async def _answer(self, call: Call, answer: Answer, stream: bool) -> web.StreamResponse:
        call.generations.extend(answer.generations)
        with self._state.running(answer.generations):
            if not stream:
                return json_response(await answer.whole())
            response = web.StreamResponse(headers={**sse.HEADERS, "Server": SERVER, "X-Request-Id": call.id})
            return await stream_events(call.request, response, answer, self._limits)

    async def _read(self, call: Call, type_: type[T]) -> tuple[Service, T]:
        """Who answers, and the body as `type_`. What would be refused without its body is refused before."""
        service = self._state.service()
        self._state.check_places(call.caller.tenant)
        depth = self._api.max_nesting_depth
        async with self._bodies.read(call.request) as body:
            if len(body) <= _LARGE_BODY:
                request = decode(body, type_, max_depth=depth)
            else:
                request = await service.context.workers.run(lambda: decode(body, type_, max_depth=depth))
        return self._state.service(), request
