"""`TokenStream.send_directly`: the engine writes texts to a socket, and each reaches its reader once and in order."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from octavo import LLM, AsyncEngine, SamplingParams
from octavo.structured import StructuredOutputsParams
from octavo.token_stream import TokenStream

HEAD, TAIL = b'data: {"text":"', b'"}\n\n'
PROMPT = [504, 3575, 282]


@pytest.fixture
def engine(llm: LLM) -> AsyncEngine:
    return AsyncEngine(llm.model)


def params(tokens: int = 60, **kwargs: object) -> SamplingParams:
    return SamplingParams(**{"temperature": 0, "max_tokens": tokens, "ignore_eos": True, **kwargs})


def chunk(text: str) -> bytes:
    """What is on the wire for a text: the encoder is msgspec's, as for every other event."""
    event = HEAD + msgspec.json.encode(text)[1:-1] + TAIL
    return b"%x\r\n%b\r\n" % (len(event), event)


async def until(condition: Callable[[], object]) -> None:
    for _ in range(100_000):
        if condition():
            return
        await asyncio.sleep(0.0005)
    raise AssertionError("it did not come about")


class Reader:
    """One request whose texts the engine writes, as soon as it may, to one end of a pair of sockets."""

    def __init__(self, stream: TokenStream) -> None:
        self.stream = stream
        self.ours, self.theirs = socket.socketpair()
        self.theirs.setblocking(False)
        self.rests: list[bytes] = []
        self.deltas: list = []
        self.received = b""

    def attach(self) -> bool:
        return self.stream.send_directly(self.ours.fileno(), HEAD, TAIL, self.rests.append)

    async def run(self) -> None:
        attached = asyncio.create_task(self._attach_soon())
        while not self.stream.finished or self.stream.backlog:
            self.deltas += await self.stream.next()
        attached.cancel()

    async def _attach_soon(self) -> None:
        await until(self.attach)

    def receive(self) -> bytes:
        """All that has come by now."""
        try:
            while data := self.theirs.recv(1 << 16):
                self.received += data
        except BlockingIOError:
            pass
        return self.received

    def close(self) -> None:
        self.stream.cancel()
        self.ours.close()
        self.theirs.close()


@asynccontextmanager
async def reading(engine: AsyncEngine, params: SamplingParams) -> AsyncIterator[Reader]:
    reader = Reader(engine.submit(PROMPT, await engine.with_grammar(params)))
    try:
        yield reader
    finally:
        reader.close()


def test_each_text_is_written_as_one_event(engine: AsyncEngine, llm: LLM) -> None:
    want = llm.generate({"prompt_token_ids": PROMPT}, params(), use_tqdm=False)[0].outputs[0]

    async def run() -> Reader:
        async with reading(engine, params()) as reader:
            await reader.run()
            reader.receive()
            return reader

    reader = asyncio.run(run())
    sent = [delta for delta in reader.deltas if delta.sent]
    assert len(sent) >= 50 and not reader.rests and not any(delta.rest for delta in reader.deltas)
    assert reader.received == b"".join(chunk(delta.text) for delta in sent)
    assert "".join(delta.text for delta in reader.deltas) == want.text
    assert [token for delta in reader.deltas for token in delta.token_ids] == want.token_ids


def test_every_character_is_escaped_as_in_other_events(engine: AsyncEngine) -> None:
    every = [*map(chr, range(32)), *'"\\/<\x7fé字🐙']
    special = [c for c in every if engine.tokenizer.decode(engine.tokenizer.encode(c)) == c]
    assert len(special) > 20
    drawn = params(200, ignore_eos=False)
    drawn.structured_outputs = StructuredOutputsParams(
        regex="[ab]{9}" + "".join(f"\\u{{{ord(c):x}}}[ab]" for c in special)
    )

    async def run() -> Reader:
        async with reading(engine, drawn) as reader:
            await reader.run()
            reader.receive()
            return reader

    reader = asyncio.run(run())
    sent = [delta.text for delta in reader.deltas if delta.sent]
    assert {*"".join(sent)} >= {*special}
    assert reader.received == b"".join(map(chunk, sent))


def test_what_a_full_socket_does_not_take_comes_another_way(engine: AsyncEngine) -> None:
    async def run() -> Reader:
        async with reading(engine, params(400)) as reader:
            reader.ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 1)  # as small as can be
            await reader.run()
            reader.receive()
            return reader

    reader = asyncio.run(run())
    sent = [delta for delta in reader.deltas if delta.sent]
    told = [delta.sent for delta in reader.deltas if delta.text]
    first, count = told.index(True), len(sent)
    assert all(told[first : first + count]) and len(told) - first - count > 50
    assert reader.received + b"".join(reader.rests) == b"".join(chunk(delta.text) for delta in sent)


def test_a_reader_that_has_gone_is_nobody_s_end(engine: AsyncEngine) -> None:
    async def run() -> Reader:
        async with reading(engine, params()) as reader:
            reader.theirs.close()
            await reader.run()
            return reader

    reader = asyncio.run(run())
    assert not any(delta.sent for delta in reader.deltas) and reader.deltas[-1].finish == "length"


def test_it_is_refused_while_something_waits_or_there_are_several_choices(engine: AsyncEngine) -> None:
    async def run() -> None:
        async with reading(engine, params()) as reader:
            assert not reader.attach()  # nobody waits for deltas
            await until(lambda: reader.stream.backlog)
            assert not reader.attach()
            await reader.run()
            assert not reader.attach() and reader.stream.take_back() is None  # it has ended
        async with reading(engine, params(n=2)) as reader:
            waiting = asyncio.create_task(reader.stream.next())
            await asyncio.sleep(0)
            assert not reader.attach()
            await waiting

    asyncio.run(run())


def test_it_can_be_taken_back(engine: AsyncEngine) -> None:
    async def run() -> None:
        async with reading(engine, params(900)) as reader:
            task = asyncio.create_task(reader.run())
            await until(reader.receive)
            last = reader.stream.take_back()
            assert last is not None and 0 <= time.monotonic() - last < 5
            assert reader.stream.take_back() is None
            before = reader.receive()
            seen = len(reader.deltas)
            await until(lambda: any(not delta.sent for delta in reader.deltas[seen:]))
            reader.stream.cancel()
            await task
            assert reader.receive() == before

    asyncio.run(run())


def test_deltas_of_written_texts_still_come(engine: AsyncEngine) -> None:
    """Whoever counts tokens hears of them within a fraction of a second."""

    async def run() -> list[int]:
        async with reading(engine, params(900)) as reader:
            task = asyncio.create_task(reader.run())
            counts = []
            for _ in range(4):
                await asyncio.sleep(0.4)
                counts.append(len(reader.deltas))
            reader.stream.cancel()
            await task
            return counts

    counts = asyncio.run(run())
    assert counts == sorted(set(counts))
