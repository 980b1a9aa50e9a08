"""The load client against servers whose behaviour is known."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import Any

import numpy as np
import pytest
from aiohttp import web

from octavo_bench.client import Load, LoadRun, Record, Shot, Target, Window, run_load, summarize
from octavo_bench.client.processes import Client
from octavo_bench.client.summary import steady_window
from octavo_bench.client.watch import Watch, limits

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]


@asynccontextmanager
async def served(handler: Handler, path: str = "/v1/completions") -> AsyncIterator[Target]:
    app = web.Application()
    app.router.add_post(path, handler)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    try:
        yield Target(f"http://127.0.0.1:{runner.addresses[0][1]}", "m", path)
    finally:
        await runner.cleanup()


def send(handler: Handler, load: Load) -> list[Record]:
    async def go() -> list[Record]:
        async with served(handler) as target:
            return await run_load(target, load)

    return asyncio.run(go())


def paced(
    first: float, between: float, seen: list[Any] | None = None, wrote: list[list[float]] | None = None
) -> Handler:
    """A server that answers with ``max_tokens`` chunks at a known pace, and notes bodies and times of writing."""

    async def handler(request: web.Request) -> web.StreamResponse:
        body = await request.json()
        if seen is not None:
            seen.append(body)
        response = web.StreamResponse(headers={"Content-Type": "text/event-stream"})
        await response.prepare(request)
        times: list[float] = []
        if wrote is not None:
            wrote.append(times)
        for i in range(body["max_tokens"]):
            await asyncio.sleep(between if i else first)
            times.append(time.perf_counter())
            choice: dict[str, Any] = {"index": 0, "finish_reason": None}
            choice |= {"delta": {"content": f"t{i} "}} if "messages" in body else {"text": f"t{i} "}
            await response.write(b"data: " + json.dumps({"choices": [choice]}).encode() + b"\n\n")
        usage = {"prompt_tokens": len(body.get("prompt", "")), "completion_tokens": body["max_tokens"]}
        await response.write(b"data: " + json.dumps({"choices": [], "usage": usage}).encode() + b"\n\n")
        await response.write(b"data: [DONE]\n\n")
        return response

    return handler


def raw(*pieces: bytes, status: int = 200, cut: bool = False) -> Handler:
    """A server that answers with these bytes, and may break the connection off."""

    async def handler(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse(status=status)
        await response.prepare(request)
        for piece in pieces:
            await response.write(piece)
        if cut:
            assert request.transport is not None
            request.transport.close()
        return response

    return handler


def test_a_paced_server_is_reported_as_it_is() -> None:
    wrote: list[list[float]] = []
    records = send(paced(0.10, 0.02, None, wrote), Load([Shot(0.0, [1, 2, 3], 6) for _ in range(4)]))
    summary = summarize(records)
    assert summary.failures == {}
    assert (summary.prompt_tokens, summary.output_tokens, summary.chunks) == (12, 24, 24)
    assert summary.ttft.values.min() >= 0.0999
    assert summary.tpot.median == pytest.approx(np.median([(t[-1] - t[0]) / 5 for t in wrote]), abs=0.005)
    assert len(summary.itl) == 20 and summary.max_concurrent == 4
    assert records[0].text == "t0 t1 t2 t3 t4 t5 "


@pytest.mark.slow
def test_a_slow_server_does_not_slow_the_schedule_down() -> None:
    """Row 110: both latencies, and the client's own queue apart."""
    shots = [Shot(0.05 * i, [1], 1) for i in range(5)]
    records = send(paced(0.2, 0.0), Load(shots, concurrency=1))
    assert [r.due for r in records] == [s.due for s in shots]
    # One at a time takes 0.2 s each: the last was due at 0.2 s and is served at about 1 s.
    assert max(r.scheduled_latency or 0 for r in records) > 0.6
    for r in records:
        assert r.scheduled_latency == pytest.approx(
            (r.latency or 0) + (r.client_queue or 0) + (r.dispatch_delay or 0)
        )
    assert max(r.client_queue or 0 for r in records) > 0.4


USAGE = b'data: {"choices": [], "usage": {"prompt_tokens": 1, "completion_tokens": 1}}\n\n'
TOKEN = b'data: {"choices": [{"text": "x"}]}\n\n'
DONE = b"data: [DONE]\n\n"


@pytest.mark.parametrize(
    ("handler", "kind"),
    [
        (raw(b'{"error": {"message": "no"}}', status=429), "HTTP 429"),
        (raw(TOKEN), "incomplete stream"),
        (raw(TOKEN, cut=True), "disconnected"),
        (raw(TOKEN, b'data: {"error": {"message": "out of luck"}}\n\n', DONE), "error event"),
        (raw(b"data: {nonsense\n\n"), "bad event"),
    ],
    ids=["refused", "unfinished", "cut", "error", "nonsense"],
)
def test_failures_are_counted_by_kind_and_enter_no_average(handler: Handler, kind: str) -> None:
    records = send(handler, Load([Shot(0.0, [1], 1)] * 3))
    summary = summarize(records)
    assert summary.failures == {kind: 3}
    assert summary.output_tokens == 0 and len(summary.ttft) == len(summary.latency) == 0
    assert all(r.error and r.error.startswith(kind) for r in records)


def test_chunks_cut_anywhere_comments_and_missing_counts() -> None:
    pieces = b": a comment\n\n" + TOKEN + TOKEN.replace(b"\n\n", b"\r\n\r\n") + DONE
    (record,) = send(raw(*(pieces[i : i + 7] for i in range(0, len(pieces), 7))), Load([Shot(0.0, [1], 2)]))
    assert record.ok and record.text == "xx" and record.output_tokens is None and record.tokens == 2
    assert summarize([record]).uncounted == 1


def test_an_answer_without_text_still_has_a_first_token() -> None:
    end = b'data: {"choices": [{"text": "", "finish_reason": "stop"}]}\n\n'
    (record,) = send(raw(end, USAGE, DONE), Load([Shot(0.0, [1], 1)]))
    assert record.ok and record.ttft is not None and record.finish_reason == "stop"


def test_a_client_that_hangs_up_is_neither_a_failure_nor_an_average() -> None:
    records = send(paced(0.01, 0.01), Load([Shot(0.0, [1], 500, cancel_after=3), Shot(0.0, [1], 4)]))
    summary = summarize(records)
    assert (summary.cancelled, summary.completed, summary.failures) == (1, 1, {})
    assert len(summary.latency) == 1 and 3 <= len(records[0].chunks) < 50


def test_a_slow_reader_is_completed_but_not_timed() -> None:
    (record,) = send(paced(0.0, 0.001), Load([Shot(0.0, [1], 10, read_rate=50.0)]))
    summary = summarize([record])
    assert (summary.completed, summary.slow_readers, len(summary.latency)) == (1, 1, 0)
    assert record.latency is not None and record.latency > 0.15


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions"])
def test_a_later_turn_carries_what_was_said(path: str) -> None:
    bodies: list[Any] = []
    shots = [
        Shot(0.0, "A", 2),
        Shot(0.0, "B", 1, previous=0, think=0.05),
        Shot(0.0, "C", 1, previous=1),
    ]

    async def go() -> list[Record]:
        async with served(paced(0.0, 0.0, bodies), path) as target:
            return await run_load(target, Load(shots))

    records = asyncio.run(go())
    assert all(r.ok for r in records)
    if path.endswith("chat/completions"):
        said = [(m["role"], m["content"]) for m in bodies[2]["messages"]]
        assert said == [
            ("user", "A"), ("assistant", "t0 t1 "), ("user", "B"), ("assistant", "t0 "), ("user", "C"),
        ]  # fmt: skip
    else:
        assert [b["prompt"] for b in bodies] == ["A", "At0 t1 B", "At0 t1 Bt0 C"]
    assert records[0].finished is not None and records[1].dispatched is not None
    assert records[1].dispatched - records[0].finished >= 0.05


def test_a_server_that_goes_away_ends_the_run_and_what_came_is_kept() -> None:
    async def go() -> LoadRun:
        async with served(paced(0.0, 0.0)) as target:
            run = LoadRun(target, Load([Shot(0.02 * i, [1], 1) for i in range(500)]))
            task = asyncio.create_task(run.run())
            await asyncio.sleep(0.3)
        await task
        return run

    run = asyncio.run(go())
    summary = summarize(run.records)
    assert run.stopped is not None and run.stopped.startswith("the server went away")
    assert summary.completed >= 2 and summary.failures["connect"] >= 10 and summary.failures["not sent"] > 100
    assert summary.completed + summary.failed == 500


@pytest.mark.slow
def test_two_processes_share_a_load_and_keep_its_order() -> None:
    async def go() -> None:
        async with served(paced(0.01, 0.0)) as target:
            shots = [Shot(0.01 * i, [1] * (i + 1), 1) for i in range(9)]
            shots += [Shot(0.0, "A", 1), Shot(0.0, "B", 1, previous=9)]
            client = Client(target, Load(shots, concurrency=4), processes=2)
            outcome = await client.run()
        assert [r.prompt_tokens for r in outcome.records[:9]] == list(range(1, 10))
        assert all(r.ok for r in outcome.records) and outcome.stopped is None
        assert len(outcome.watches) == 2 and sum(w.chunks for w in outcome.watches) == 11

    asyncio.run(go())


def record(start: float, first: float, end: float, tokens: int = 3) -> Record:
    made = Record(due=start, released=start, dispatched=start, finished=end, ended=end, output_tokens=tokens)
    made.chunks.extend(np.linspace(first, end, tokens))
    return made


def test_a_window_holds_what_was_sent_and_what_arrived_in_it() -> None:
    records = [record(float(i), i + 0.5, i + 2.5) for i in range(10)]
    window = steady_window(records)
    assert window == Window(2.5, 9.0)
    summary = summarize(records, window)
    assert summary.requests == 6 and summary.max_concurrent == 3  # sent at 3 to 8
    assert summary.request_rate == pytest.approx(7 / 6.5)  # ended at 2.5 to 8.5
    arrivals = [i + 0.5 + k for i in range(10) for k in range(3)]
    assert summary.output_rate == pytest.approx(sum(2.5 <= t < 9 for t in arrivals) / 6.5)
    assert steady_window(records, warmup=4.0) == Window(4.0, 9.0)
    assert steady_window([record(0.0, 1.0, 2.0)] * 3) is None


def test_figures_are_numpys() -> None:
    rng = np.random.default_rng(0)
    times = rng.random((200, 3)).cumsum(axis=1)
    summary = summarize([record(0.0, float(a), float(b)) for a, b, _ in times])
    ttfts, ends = times[:, 0], times[:, 1]
    assert summary.ttft.mean == pytest.approx(ttfts.mean()) and summary.ttft.std == pytest.approx(ttfts.std())
    for q in (1, 50, 99.9):
        assert summary.latency.percentile(q) == pytest.approx(np.percentile(ends, q))
        assert summary.tpot.percentile(q) == pytest.approx(np.percentile((ends - ttfts) / 2, q))
    assert summary.output_rate == pytest.approx(600 / ends.max())


@pytest.mark.parametrize(
    ("watch", "delay", "reasons"),
    [
        (Watch(0.001, 0.1, 0.3, 0.5, 1.0), 0.001, 0),
        (Watch(0.001, 0.1, 0.3, 0.95, 1.0), 0.001, 1),
        (Watch(0.05, 0.1, 0.3, 0.5, 1.0), None, 1),
        (Watch(0.05, 0.1, 0.9, 0.95, 1.0), 0.5, 3),
    ],
)
def test_a_client_that_cannot_keep_up_says_why(watch: Watch, delay: float | None, reasons: int) -> None:
    assert len(limits([Watch(0.0, 0.0, 0.0, 0.0, 1.0), watch], delay)) == reasons
