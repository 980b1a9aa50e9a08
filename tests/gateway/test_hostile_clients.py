"""Clients that are slow, many, or send what costs much: each is held to its bound, the others do not notice."""

from __future__ import annotations

import asyncio
import gzip
import json
import logging
import threading
import time
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, Client, run, serving

from octavo_gateway.protocol.completions import CompletionRequest
from octavo_gateway.protocol.decode import MAX_LIST_ITEMS, decode
from octavo_gateway.protocol.errors import ApiError

ROUTE = "/v1/chat/completions"
HEAD = b"POST " + ROUTE.encode() + b" HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n"
BODY = json.dumps(HELLO).encode()


def engine(**kwargs: Any) -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken("fine"), **kwargs))


async def connect(client: Client) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    return await asyncio.open_connection("127.0.0.1", client.port)


async def answer(reader: asyncio.StreamReader) -> tuple[int, Any]:
    """Status and body of an answer after which the server closes."""
    head, _, body = (await asyncio.wait_for(reader.read(), 10)).partition(b"\r\n\r\n")
    assert b"Connection: close" in head and b"application/json" in head
    return int(head.split()[1]), json.loads(body)["error"]


@pytest.mark.parametrize("trickle", [pytest.param(False, marks=pytest.mark.slow), True])
def test_a_head_that_does_not_come(trickle: bool) -> None:
    async def scenario() -> None:
        async with serving(engine(), server={"header_seconds": 0.3, "idle_seconds": 5.0}) as client:
            reader, writer = await connect(client)
            start = time.monotonic()
            writer.write(b"POST /v1/chat/completions HTTP/1.1\r\n")
            if trickle:
                for i in range(10):
                    await asyncio.sleep(0.02)
                    writer.write(b"X-%d: y\r\n" % i)
            status, error = await answer(reader)
            assert status == 408 and error["code"] == "request_timeout"
            assert 0.25 < time.monotonic() - start < 3
            writer.close()

    run(scenario())


@pytest.mark.slow
def test_a_head_in_pieces_and_a_second_request_on_its_connection() -> None:
    async def scenario() -> None:
        async with serving(engine(), server={"header_seconds": 0.3, "idle_seconds": 0.6}) as client:
            reader, writer = await connect(client)
            for _ in range(2):
                raw = HEAD % len(BODY) + BODY
                writer.write(raw[:40])
                await asyncio.sleep(0.1)
                writer.write(raw[40:])
                await asyncio.sleep(0.4)  # longer than a head may take: none is under way
                got = await asyncio.wait_for(reader.read(4096), 5)
                assert b" 200 " in got and got.endswith(b'"}')
            # Nothing more comes: the connection is closed without a word.
            assert await asyncio.wait_for(reader.read(), 5) == b""
            writer.close()

    run(scenario())


def test_a_slow_body_takes_no_place_and_is_given_up() -> None:
    async def scenario() -> None:
        async with serving(engine(), server={"max_concurrent": 1, "body_seconds": 0.6}) as client:
            reader, writer = await connect(client)
            writer.write(HEAD % len(BODY) + BODY[:10])
            await asyncio.sleep(0.1)
            assert client.state.accepted == 0
            assert (await client.chat())[0] == 200
            status, error = await answer(reader)
            assert status == 408 and error["code"] == "request_timeout"
            writer.close()

    run(scenario())


def test_large_bodies_share_a_bounded_memory() -> None:
    async def scenario() -> None:
        limits = {"max_body_bytes": 400_000, "max_bodies_bytes": 400_000}
        async with serving(engine(), server=limits) as client:
            _, writer = await connect(client)
            writer.write(HEAD % 400_000 + b" " * 350_000)
            await asyncio.sleep(0.2)
            status, headers, body = await client.post(ROUTE, b" " * 300_000)
            assert (
                status == 503 and "Retry-After" in headers and body["error"]["code"] == "service_unavailable"
            )
            assert (await client.post(ROUTE, BODY + b" " * 60_000))[0] == 200
            writer.close()
            await asyncio.sleep(0.1)
            assert (await client.post(ROUTE, BODY + b" " * 300_000))[0] == 200

    run(scenario())


def test_connections_beyond_the_limit_are_told_so() -> None:
    async def scenario() -> None:
        async with serving(engine(), server={"max_connections": 2}) as client:
            held = [await connect(client) for _ in range(2)]
            await asyncio.sleep(0.05)
            reader, writer = await connect(client)
            writer.write(HEAD % len(BODY) + BODY)
            status, error = await answer(reader)
            assert status == 503 and error["code"] == "service_unavailable"
            writer.close()
            for _, other in held:
                other.close()
            await asyncio.sleep(0.05)
            assert (await client.chat())[0] == 200

    run(scenario())


def test_an_answer_that_nobody_reads_is_given_up() -> None:
    async def scenario() -> None:
        loud = ScriptedEngine(Script(steps=[([120], "x" * 20_000_000)]))
        async with serving(loud, server={"stalled_reader_seconds": 0.4}) as client:
            _, writer = await connect(client)
            writer.transport.pause_reading()  # type: ignore[attr-defined]
            writer.write(HEAD % len(BODY) + BODY)
            await asyncio.sleep(0.3)
            assert loud.submitted and client.state.accepted == 0  # its place is free: only bytes remain
            assert client.open_connections() == 1
            deadline = time.monotonic() + 5
            while client.open_connections():
                assert time.monotonic() < deadline
                await asyncio.sleep(0.02)
            writer.close()

    run(scenario())


def test_compressed_and_broken_bodies_leave_no_trace_in_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            for encoding, body in (
                ("gzip", gzip.compress(b"0" * 10_000_000)),
                ("gzip", b"junk"),
                ("br", b"junk"),
            ):
                headers = {"Content-Encoding": encoding}
                status, _, told = await client.post(ROUTE, body, headers=headers)
                assert status == 415 and told["error"]["code"] == "unsupported_content_encoding"
            reader, writer = await connect(client)
            writer.write(
                HEAD.replace(b"Content-Length: %d", b"Transfer-Encoding: chunked") + b"zz\r\nnonsense\r\n"
            )
            raw = await asyncio.wait_for(reader.read(), 5)
            assert raw.split()[1] == b"400"
            writer.close()
            assert (await client.chat())[0] == 200

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert not [r for r in caplog.records if r.levelno >= logging.WARNING or r.exc_info]


def test_numbers_are_bounded_before_they_are_made() -> None:
    def body(items: int) -> bytes:
        return b'{"prompt":[1' + b",1" * items + b"]}"

    assert len(decode(body(MAX_LIST_ITEMS), CompletionRequest).prompt) == MAX_LIST_ITEMS + 1
    start = time.thread_time()
    with pytest.raises(ApiError, match=f"prompt: A body may have at most {MAX_LIST_ITEMS} items") as caught:
        decode(body(16 * 2**20), CompletionRequest)
    assert caught.value.status == 400 and caught.value.body.param == "prompt"
    assert time.thread_time() - start < 1.0
    commas = b'{"prompt":"' + b'\\",' * (MAX_LIST_ITEMS + 5) + b'"}'
    assert decode(commas, CompletionRequest).prompt == '",' * (MAX_LIST_ITEMS + 5)


@pytest.mark.parametrize("key", ["1_0", " 1", "+1", "01", "\u0661", "1.0", "1e1", "", "9999999999"])
def test_only_a_token_id_is_a_key_of_logit_bias(key: str) -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            status, _, told = await client.chat(logit_bias={key: 1})
            assert status == 400 and told["error"]["param"] == "logit_bias"

    run(scenario())


def test_large_texts_leave_a_tokenizer_thread_to_others() -> None:
    async def scenario() -> None:
        scripted = engine()
        encode, answered = scripted.tokenizer.encode, threading.Event()

        def dawdling(text: str, *, add_special_tokens: bool) -> list[int]:
            if len(text) > 10_000:
                answered.wait(0.4)
            return encode(text, add_special_tokens=add_special_tokens)

        scripted.tokenizer.encode = dawdling  # type: ignore[method-assign]
        text = "x" * 300_000
        async with serving(scripted) as client:
            large = [asyncio.ensure_future(client.post("/tokenize", {"prompt": text})) for _ in range(4)]
            for path, body in (
                ("/v1/completions", {"prompt": text, "truncate_prompt_tokens": 5}),
                (ROUTE, {"messages": [{"role": "user", "content": text}], "truncate_prompt_tokens": 5}),
            ):
                large.append(asyncio.ensure_future(client.post(path, body)))
            await asyncio.sleep(0.2)
            start = time.monotonic()
            assert (await client.post("/v1/completions", {"prompt": "small"}))[0] == 200
            assert time.monotonic() - start < 0.35 and not any(task.done() for task in large[1:])
            answered.set()
            assert [status for status, _, _ in await asyncio.gather(*large)] == [200] * 6

    run(scenario())
