"""A client that goes, or that does not read, ends its own request and nobody else's."""

from __future__ import annotations

import asyncio
import json
import socket
import threading
import time
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, Client, run, serving


def endless(**kwargs: Any) -> ScriptedEngine:
    return ScriptedEngine(
        Script(steps=[([120], "x")] * 200, step_seconds=0.05, first_step_seconds=kwargs.pop("first", 0.0)),
        **kwargs,
    )


def http_request(body: dict[str, Any]) -> bytes:
    data = json.dumps(body).encode()
    return b"POST /v1/chat/completions HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n" % len(data) + data


async def open_request(client: Client, stream: bool) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
    writer.write(http_request({**HELLO, "stream": stream}))
    await writer.drain()
    return reader, writer


async def until(condition: Any, seconds: float = 2.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "the condition did not come about"
        await asyncio.sleep(0.005)


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize("phase", ["queued", "prefill", "decode"])
def test_a_client_that_goes_frees_its_request(stream: bool, phase: str) -> None:
    """Behaviours 81 and 82."""

    async def scenario() -> None:
        engine = endless(first=60.0 if phase == "prefill" else 0.0, max_num_seqs=1)
        async with serving(engine) as client:
            others = []
            if phase == "queued":
                others.append(await open_request(client, True))
                await until(lambda: engine.running == 1)
            _, writer = await open_request(client, stream)
            await until(lambda: len(engine.submitted) == len(others) + 1)
            await asyncio.sleep(0.12)
            writer.close()
            mine = engine.submitted[-1]
            await until(lambda: mine.cancelled, 1.0)
            await until(lambda: engine.waiting == 0 and engine.running == len(others), 1.0)
            for _, other in others:
                assert not engine.submitted[0].cancelled
                other.close()
            await until(lambda: client.state.metrics.finished["abort"] == len(others) + 1)

    run(scenario())


def test_a_client_that_goes_while_its_prompt_is_tokenized() -> None:
    async def scenario() -> None:
        engine = endless()
        encode = engine.tokenizer.encode_chat

        def slow(*args: Any, **kwargs: Any) -> list[int]:
            time.sleep(0.3)
            return encode(*args, **kwargs)

        engine.tokenizer.encode_chat = slow  # type: ignore[method-assign]
        async with serving(engine) as client:
            _, writer = await open_request(client, False)
            await asyncio.sleep(0.1)
            writer.close()
            await asyncio.sleep(0.4)
            assert engine.submitted == []

    run(scenario())


def test_health_answers_while_a_prompt_is_tokenized() -> None:
    """Behaviour 88."""

    async def scenario() -> None:
        engine = ScriptedEngine(Script(steps=spoken("ok")))
        encode, seen = engine.tokenizer.encode_chat, threading.Event()

        def slow(*args: Any, **kwargs: Any) -> list[int]:
            seen.wait(1.0)
            return encode(*args, **kwargs)

        engine.tokenizer.encode_chat = slow  # type: ignore[method-assign]
        async with serving(engine) as client:
            chat = asyncio.ensure_future(client.chat())
            await asyncio.sleep(0.1)
            slowest = 0.0
            for _ in range(20):
                start = time.monotonic()
                assert (await client.get("/health"))[0] == 200
                slowest = max(slowest, time.monotonic() - start)
            assert not chat.done() and slowest < 0.5
            seen.set()
            assert (await chat)[0] == 200

    run(scenario())


@pytest.mark.slow
def test_a_storm_of_disconnects_leaves_nothing() -> None:
    """Behaviour 83."""

    async def scenario() -> None:
        engine = endless(max_num_seqs=8)
        async with serving(engine) as client:

            async def one(i: int) -> None:
                _, writer = await open_request(client, bool(i % 2))
                await asyncio.sleep((i % 7) * 0.01)
                writer.transport.abort()

            for start in range(0, 1000, 100):
                await asyncio.gather(*(one(i) for i in range(start, start + 100)))
            await until(lambda: engine.running == engine.waiting == 0)
            assert client.state.metrics.finished["abort"] == len(engine.submitted)
            engine.script = Script(steps=spoken("well"))
            status, _, body = await client.chat()
            assert status == 200 and body["choices"][0]["message"]["content"] == "well"

    run(scenario())


def test_a_reader_that_stops_reading_is_aborted_alone() -> None:
    async def scenario() -> None:
        # Far more than the kernel's buffers take, so that the flood is still running when they are full.
        flood = Script(steps=[([120], "x" * 20_000)] * 2000, step_seconds=0.001)
        engine = ScriptedEngine(
            lambda prompt: flood if b"flood" in bytes(prompt) else Script(steps=spoken("ok"))
        )
        async with serving(engine, server={"max_stream_backlog": 20, "stalled_reader_seconds": 30}) as client:
            sock = socket.socket()
            sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            sock.setblocking(False)
            await asyncio.get_running_loop().sock_connect(sock, ("127.0.0.1", client.port))
            body = {**HELLO, "messages": [{"role": "user", "content": "flood"}], "stream": True}
            await asyncio.get_running_loop().sock_sendall(sock, http_request(body))
            await until(lambda: engine.submitted, 5)
            # However far the flood had come by then: the request ends as abandoned.
            await until(lambda: client.state.metrics.finished["abort"] == 1, 40)
            status, _, answer = await client.chat()
            assert status == 200 and answer["choices"][0]["message"]["content"] == "ok"
            sock.close()

    run(scenario())


@pytest.mark.slow
def test_a_slow_reader_gets_everything_in_larger_pieces() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(Script(steps=[([120], "y" * 50_000)] * 100, step_seconds=0.001))
        async with serving(engine) as client:
            reader, writer = await open_request(client, True)
            await asyncio.sleep(0.5)
            raw = b""
            while b"[DONE]" not in raw[-200:]:
                raw += await reader.read(65536)
            assert raw.count(b"y") >= 100 * 50_000
            assert raw.count(b'"content":"y') < 100
            writer.close()

    run(scenario())
