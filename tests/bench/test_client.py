"""The load client against servers whose behaviour is known."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from octavo_bench.client import Load, Shot, percentile, run_load, summarize

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler) -> AsyncIterator[str]:
    app = web.Application()
    app.router.add_post("/v1/completions", handler)
    runner = web.AppRunner(app)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    port = site._server.sockets[0].getsockname()[1]  # type: ignore[union-attr]
    try:
        yield f"http://127.0.0.1:{port}/v1"
    finally:
        await runner.cleanup()


def paced(first: float, between: float) -> Handler:
    """A server that answers with ``max_tokens`` chunks at a known pace."""

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        for i in range(body["max_tokens"]):
            await asyncio.sleep(between if i else first)
            event = {"choices": [{"index": 0, "text": f"t{i} ", "finish_reason": None}]}
            await response.write(b"data: " + json.dumps(event).encode() + b"\n\n")
        usage = {"prompt_tokens": len(body["prompt"]), "completion_tokens": body["max_tokens"]}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    return handler


def test_a_paced_server_is_reported_as_it_is() -> None:
    async def go() -> None:
        async with served(paced(0.10, 0.02)) as url:
            records = await run_load(url, "m", Load([Shot(0.0, [1, 2, 3], 6) for _ in range(4)]))
        summary = summarize(records)
        assert summary.failures == {}
        assert summary.prompt_tokens == 12
        assert summary.output_tokens == 24
        assert summary.ttft_p50 == pytest.approx(0.10, abs=0.04)
        assert summary.tpot_p50 == pytest.approx(0.02, abs=0.01)
        assert records[0].text == "t0 t1 t2 t3 t4 t5 "

    asyncio.run(go())


def test_a_slow_server_does_not_slow_the_schedule_down() -> None:
    async def go() -> None:
        async with served(paced(0.2, 0.0)) as url:
            shots = [Shot(0.05 * i, [1], 1) for i in range(5)]
            records = await run_load(url, "m", Load(shots, concurrency=1))
        assert [r.due for r in records] == [s.due for s in shots]
        # One at a time takes 0.2 s each: the last was due at 0.2 s and is served at about 1 s.
        last = max(r.scheduled_latency or 0 for r in records)
        assert last > 0.6
        assert max(r.latency or 0 for r in records) < 0.5

    asyncio.run(go())


def test_failures_are_counted_by_kind_and_enter_no_average() -> None:
    async def refuse(request: web.Request) -> web.StreamResponse:
        return web.json_response({"error": {"message": "no"}}, status=429)

    async def cut(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(b'data: {"choices": [{"text": "x"}]}\n\n')
        return response

    async def go(handler: Handler) -> dict[str, int]:
        async with served(handler) as url:
            summary = summarize(await run_load(url, "m", Load([Shot(0.0, [1], 1)] * 3)))
        assert summary.output_tokens == 0
        return summary.failures

    assert asyncio.run(go(refuse)) == {"HTTP 429": 3}
    assert asyncio.run(go(cut)) == {"the stream ended without [DONE]": 3}


def test_percentiles_interpolate() -> None:
    assert percentile([4.0, 1.0, 3.0, 2.0], 50) == 2.5
    assert percentile([5.0], 99) == 5.0
    assert percentile([], 50) != percentile([], 50)
