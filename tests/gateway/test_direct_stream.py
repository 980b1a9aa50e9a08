"""The engine writes the plain text of a stream to its socket by itself; who reads it cannot tell."""

from __future__ import annotations

import asyncio
import http.client
import json
import os
import socket
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import serving as in_process
from served import FRANCE, Served
from serving import MODEL

from octavo.engine_args import EngineArgs
from octavo_gateway.api.plain_text import PlainText
from octavo_gateway.server.event_stream import EventWriter, StreamLimits
from octavo_gateway.server.lifecycle import bind
from octavo_gateway.server.served_engine import ServedEngine
from octavo_gateway.server.settings import ServerSettings

LONG = {"temperature": 0, "max_tokens": 300, "ignore_eos": True}
COMPLETION = ("/v1/completions", {"prompt": 'A list: "one",\n\t"two",', **LONG})
CHAT = ("/v1/chat/completions", {"messages": FRANCE, **LONG})


def duplicates(served: Served) -> int:
    """Sockets that the server holds twice: those to which the engine writes."""
    held: Counter[str] = Counter()
    for entry in Path(f"/proc/{served.pid}/fd").iterdir():
        try:
            held[os.readlink(entry)] += 1
        except FileNotFoundError:  # closed meanwhile
            continue
    return sum(count == 2 for name, count in held.items() if name.startswith("socket:"))


def read_whole(served: Served, response: Any) -> tuple[bytes, int]:
    """The body, and how many sockets the engine wrote to meanwhile."""
    data, seen = b"", 0
    while piece := response.read(2000):
        data += piece
        seen = max(seen, duplicates(served))
    return data, seen


@contextmanager
def streaming(served: Served, path: str, body: dict[str, Any], buffer: int = 0) -> Iterator[Any]:
    connection = http.client.HTTPConnection("127.0.0.1", served.port, timeout=60)
    connection.sock = socket.socket()
    if buffer:
        connection.sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, buffer)
    connection.sock.connect(("127.0.0.1", served.port))
    connection.request("POST", path, json.dumps({**body, "stream": True}))
    try:
        yield connection.getresponse()
    finally:
        connection.close()


def text_of(data: bytes) -> str:
    events = [e for e in data.decode().split("\n\n") if e.startswith("data: {")]
    choices = [c for e in events for c in json.loads(e.removeprefix("data: "))["choices"]]
    return "".join(c["text"] if "text" in c else c["delta"].get("content", "") for c in choices)


def whole_text(served: Served, path: str, body: dict[str, Any]) -> str:
    _, answer = served.request("POST", path, body)
    (choice,) = answer["choices"]
    return choice["text"] if "text" in choice else choice["message"]["content"]


@pytest.mark.parametrize(
    ("path", "body"),
    [pytest.param(*COMPLETION, id="completion"), pytest.param(*CHAT, id="chat", marks=pytest.mark.slow)],
)
def test_the_engine_writes_and_lets_go_of_the_socket(served: Served, path: str, body: dict[str, Any]) -> None:
    want = whole_text(served, path, body)
    with streaming(served, path, body) as response:
        data, seen = read_whole(served, response)
        assert duplicates(served) == 0
    assert seen == 1
    assert text_of(data) == want and data.endswith(b"data: [DONE]\n\n")


@pytest.mark.parametrize(
    ("path", "body"),
    [
        ("/v1/completions", {**COMPLETION[1], "logprobs": 1}),
        ("/v1/completions", {**COMPLETION[1], "return_token_ids": True}),
        ("/v1/completions", {**COMPLETION[1], "prompt": ["One", "Two"]}),
        (
            "/v1/chat/completions",
            {**CHAT[1], "stream_options": {"include_usage": True, "continuous_usage_stats": True}},
        ),
        ("/v1/chat/completions", {**CHAT[1], "n": 2}),
        (
            "/v1/chat/completions",
            {**CHAT[1], "tools": [{"type": "function", "function": {"name": "look"}}]},
        ),
    ],
    ids=["logprobs", "ids", "prompts", "usage", "choices", "tools"],
)
def test_what_is_more_than_text_goes_the_other_way(served: Served, path: str, body: dict[str, Any]) -> None:
    with streaming(served, path, {**body, "max_tokens": 40}) as response:
        _, seen = read_whole(served, response)
    assert seen == 0


async def read_with_pauses(port: int, path: str, body: dict[str, Any]) -> bytes:
    """The body of a streamed answer, its chunks put together."""
    own = socket.socket()
    own.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 1)  # the least
    own.connect(("127.0.0.1", port))
    reader, writer = await asyncio.open_connection(sock=own, limit=1024)
    content = json.dumps({**body, "model": MODEL, "stream": True}).encode()
    head = f"POST {path} HTTP/1.1\r\nHost: x\r\nConnection: close\r\nContent-Length: {len(content)}\r\n\r\n"
    writer.write(head.encode() + content)
    data = b""
    while piece := await reader.read(512):
        data += piece
        if len(data) < 8_000:
            await asyncio.sleep(0.05)  # slower than the engine writes
    writer.close()
    _, _, chunks = data.partition(b"\r\n\r\n")
    out = b""
    while chunks:
        size, _, rest = chunks.partition(b"\r\n")
        out, chunks = out + rest[: int(size, 16)], rest[int(size, 16) :]
        assert chunks.startswith(b"\r\n")
        chunks = chunks[2:]
    return out


@pytest.mark.slow
def test_a_reader_that_is_slow_gets_every_text_once(smollm2: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path, body = COMPLETION[0], {**COMPLETION[1], "max_tokens": 600}
    results: list[bool] = []

    def bind_small(settings: ServerSettings) -> socket.socket:
        listener = bind(settings)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # its connections get the same: the least
        return listener

    def send_directly(plain: PlainText, fd: int, write_rest: Callable[[bytes], None]) -> bool:
        results.append(whole(plain, fd, write_rest))
        return results[-1]

    whole = PlainText.send_directly
    monkeypatch.setattr(PlainText, "send_directly", send_directly)
    monkeypatch.setattr(in_process, "bind", bind_small)

    async def run() -> tuple[str, bytes]:
        engine = ServedEngine(EngineArgs(model=str(smollm2), max_model_len=1024, threads=1))
        try:
            async with in_process.serving(engine) as client:
                _, _, answer = await client.post(path, {**body, "model": MODEL})
                return answer["choices"][0]["text"], await read_with_pauses(client.port, path, body)
        finally:
            engine.shutdown()

    want, data = asyncio.run(run())
    assert text_of(data) == want and data.endswith(b"data: [DONE]\n\n")
    assert results.count(True) > 1  # the first time ended with a full socket


class RecordedSocket:
    """A transport and the writer on it, of which only the bytes matter."""

    chunked = True

    def __init__(self, ours: socket.socket) -> None:
        self.ours = ours
        self.written = b""

    def get_extra_info(self, name: str) -> Any:
        return self.ours if name == "socket" else None

    def get_write_buffer_limits(self) -> tuple[int, int]:
        return 0, 1 << 16

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return False

    def write(self, data: bytes, drain: bool = False) -> asyncio.Future[None]:
        self.written += data
        done = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done


class StoppedByItself:
    """Plain text of which a socket has taken a part; the rest is not there yet."""

    rest: Callable[[bytes], None]

    def send_directly(self, fd: int, write_rest: Callable[[bytes], None]) -> bool:
        self.rest = write_rest
        return True

    def take_back(self) -> float | None:
        return None


def test_no_comment_comes_between_the_parts_of_an_event() -> None:
    async def run() -> bytes:
        with socket.socket() as ours:
            wire, plain = RecordedSocket(ours), StoppedByItself()
            limits = StreamLimits(keep_alive_seconds=0.02, max_backlog=9, stalled_seconds=9.0)
            writer = EventWriter(wire, wire, limits, lambda: 0, plain)  # type: ignore[arg-type]
            await writer.write(b"first")
            await asyncio.sleep(0.03)  # a comment was due
            plain.rest(b"rest")
            await asyncio.sleep(0.05)
            writer.close()
            return wire.written

    written = asyncio.run(run())
    assert written.startswith(b"firstrest") and b": keep-alive" in written


def test_a_reader_that_leaves_frees_its_request_and_the_socket(served: Served) -> None:
    before = served.metric("vllm:request_success_total")
    with streaming(served, *COMPLETION) as response:
        while duplicates(served) == 0:
            assert response.readline()
    assert served.settles(5)
    assert duplicates(served) == 0
    assert served.metric("vllm:request_success_total") == before + 1


def test_tokens_are_counted_as_they_are_otherwise(served: Served) -> None:
    names = ("vllm:generation_tokens_total", "vllm:inter_token_latency_seconds_count")
    before = [served.metric(name) for name in names]
    with streaming(served, *CHAT) as response:
        response.read()
    assert [served.metric(name) - count for name, count in zip(names, before, strict=True)] == [300, 299]
