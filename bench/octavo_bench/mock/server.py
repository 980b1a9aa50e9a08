"""The mock server: OpenAI's routes, no model, tokens by the clock."""

from __future__ import annotations

import asyncio
import json
import random
import time
from array import array
from contextlib import AbstractAsyncContextManager, nullcontext
from typing import Any

from aiohttp import web

from octavo_bench.mock.pace import Pace
from octavo_bench.precise_loop import sleep_until

MODEL = "mock"


class MockServer:
    """Serves completions and chat completions at the given pace.

    Deadlines are counted from the arrival of the request, so a late chunk does not delay the ones after it.

    Attributes:
        app: the aiohttp application.
    """

    def __init__(self, pace: Pace, seed: int = 0) -> None:
        self.pace = pace
        self._rng = random.Random(seed)
        self._gate: AbstractAsyncContextManager[Any] = (
            asyncio.Semaphore(pace.max_num_seqs) if pace.max_num_seqs else nullcontext()
        )
        self._ttfts, self._itls = array("d"), array("d")
        self._waiting = self._running = self._prompt_tokens = self._generated = self._finished = 0
        self.app = web.Application(client_max_size=1 << 28)
        self.app.router.add_get("/v1/models", self._models)
        self.app.router.add_get("/metrics", self._metrics)
        self.app.router.add_get("/health", self._health)
        self.app.router.add_get("/truth", self._truth)
        self.app.router.add_post("/v1/completions", self._completions)
        self.app.router.add_post("/v1/chat/completions", self._completions)

    async def _models(self, request: web.Request) -> web.Response:
        return web.json_response({"object": "list", "data": [{"id": MODEL, "object": "model"}]})

    async def _health(self, request: web.Request) -> web.Response:
        return web.Response()

    async def _truth(self, request: web.Request) -> web.Response:
        """What it really did, on a machine that may be busy: seconds to each first token and between chunks."""
        return web.json_response({"ttfts": list(self._ttfts), "itls": list(self._itls)})

    async def _metrics(self, request: web.Request) -> web.Response:
        label = f'{{model_name="{MODEL}"}}'
        lines = [
            f"# TYPE vllm:{name} {kind}\nvllm:{name}{label} {value}\n"
            for name, kind, value in (
                ("num_requests_running", "gauge", self._running),
                ("num_requests_waiting", "gauge", self._waiting),
                ("prompt_tokens_total", "counter", self._prompt_tokens),
                ("generation_tokens_total", "counter", self._generated),
                ("request_success_total", "counter", self._finished),
            )
        ]
        return web.Response(text="".join(lines))

    async def _completions(self, request: web.Request) -> web.StreamResponse:
        arrived = time.perf_counter()
        body = json.loads(await request.read())
        if body.get("model") != MODEL:
            message = f"The model {body.get('model')!r} does not exist."
            error = {"message": message, "type": "NotFoundError", "param": "model", "code": 404}
            return web.json_response({"error": error}, status=404)
        chat = "messages" in body
        prompt_tokens = _count(body["messages"] if chat else body.get("prompt", ""))
        output_tokens = int(body.get("max_completion_tokens") or body.get("max_tokens") or 16)
        self._waiting += 1
        queued = True
        try:
            async with self._gate:
                self._waiting -= 1
                self._running += 1
                queued = False
                start = time.perf_counter() if self.pace.max_num_seqs else arrived
                return await self._answer(request, body, chat, arrived, start, prompt_tokens, output_tokens)
        except ConnectionResetError:  # the client hung up
            return web.Response()
        finally:
            if queued:
                self._waiting -= 1
            else:
                self._running -= 1

    async def _answer(
        self,
        request: web.Request,
        body: dict[str, Any],
        chat: bool,
        arrived: float,
        start: float,
        prompt_tokens: int,
        output_tokens: int,
    ) -> web.StreamResponse:
        self._prompt_tokens += prompt_tokens
        usage = {
            "prompt_tokens": prompt_tokens,
            "completion_tokens": output_tokens,
            "total_tokens": prompt_tokens + output_tokens,
            "prompt_tokens_details": {"cached_tokens": 0},
        }
        first = start + self.pace.first_token(self._rng)
        step = self.pace.tokens_per_chunk
        chunks = -(-output_tokens // step)
        if not body.get("stream"):
            await sleep_until(first + (chunks - 1) * self.pace.itl, time.perf_counter)
            choice = _choice(chat, "tok " * output_tokens, "length", whole=True)
            self._done(output_tokens)
            return web.json_response(_event(chat, [choice], usage))
        response = web.StreamResponse(
            headers={"Content-Type": "text/event-stream", "Cache-Control": "no-cache"}
        )
        await response.prepare(request)
        piece = _frame(_event(chat, [_choice(chat, "tok " * step, None)]))
        rest = output_tokens - (chunks - 1) * step
        last = _frame(_event(chat, [_choice(chat, "tok " * rest, "length")]))
        before = 0.0
        for i in range(chunks):
            await sleep_until(first + i * self.pace.itl, time.perf_counter)
            now = time.perf_counter()
            if i:
                self._itls.append(now - before)
            else:
                self._ttfts.append(now - arrived)
            before = now
            await response.write(piece if i < chunks - 1 else last)
            self._generated += step if i < chunks - 1 else rest
        if (body.get("stream_options") or {}).get("include_usage"):
            await response.write(_frame(_event(chat, [], usage)))
        await response.write(b"data: [DONE]\n\n")
        self._finished += 1
        return response

    def _done(self, tokens: int) -> None:
        self._generated += tokens
        self._finished += 1


def _count(prompt: Any) -> int:
    """Token ids are counted, of text its words."""
    if isinstance(prompt, str):
        return max(1, len(prompt.split()))
    if prompt and isinstance(prompt[0], dict):
        return sum(_count(message.get("content") or "") for message in prompt)
    return len(prompt)


def _choice(chat: bool, text: str, finish: str | None, whole: bool = False) -> dict[str, Any]:
    if not chat:
        return {"index": 0, "text": text, "logprobs": None, "finish_reason": finish}
    key = "message" if whole else "delta"
    return {"index": 0, key: {"role": "assistant", "content": text}, "finish_reason": finish}


def _event(chat: bool, choices: list[dict[str, Any]], usage: dict[str, Any] | None = None) -> dict[str, Any]:
    kind = "chat.completion.chunk" if chat else "text_completion"
    event = {"id": "cmpl-mock", "object": kind, "created": 0, "model": MODEL, "choices": choices}
    return {**event, "usage": usage} if usage else event


def _frame(event: dict[str, Any]) -> bytes:
    return b"data: " + json.dumps(event).encode() + b"\n\n"
