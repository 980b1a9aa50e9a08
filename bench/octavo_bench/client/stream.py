"""One streamed request: body out, server-sent events in."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import aiohttp
import msgspec

from octavo_bench.client.records import Record, Shot
from octavo_bench.client.target import Target

_JSON = {"Content-Type": "application/json"}
# aiohttp's default of 64 KiB per read stalls fast streams; a large buffer costs nothing here.
READ_BUFFER = 1 << 20
# A slow reader must not hide behind its own buffer.
SLOW_READ_BUFFER = 1 << 10


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None
    reasoning: str | None = None
    tool_calls: Any = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None


class _PromptDetails(msgspec.Struct):
    cached_tokens: int | None = None


class _Usage(msgspec.Struct):
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    prompt_tokens_details: _PromptDetails | None = None


class _Event(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: Any = None


_decode = msgspec.json.Decoder(_Event).decode


async def send(
    session: aiohttp.ClientSession,
    target: Target,
    shot: Shot,
    body: bytes,
    record: Record,
    clock: Callable[[], float],
) -> None:
    """Sends one shot and fills its record; every failure ends up there with its kind."""
    record.slow_reader = shot.read_rate is not None
    buffer = SLOW_READ_BUFFER if record.slow_reader else READ_BUFFER
    record.dispatched = clock()
    try:
        async with session.post(target.url, data=body, headers=_JSON, read_bufsize=buffer) as response:
            if response.status != 200:
                record.fail(f"HTTP {response.status}", (await response.text())[:300])
                return
            await _read_events(response.content, shot, record, clock)
            if record.cancelled:
                response.close()
    except aiohttp.ClientConnectorError as e:
        record.fail("connect", str(e))
    except (TimeoutError, asyncio.TimeoutError) as e:
        record.fail("timeout", str(e))
    except (aiohttp.ClientError, OSError) as e:
        record.fail("disconnected", f"{type(e).__name__}: {e}")
    except ValueError as e:  # msgspec's, and of text that is no text
        record.fail("bad event", str(e))
    finally:
        record.ended = clock()


async def _read_events(
    content: aiohttp.StreamReader, shot: Shot, record: Record, clock: Callable[[], float]
) -> None:
    texts: list[str] = []
    rest = b""
    try:
        while block := await content.readany():
            now = clock()
            lines = (rest + block if rest else block).split(b"\n")
            rest = lines.pop()
            for line in lines:
                if not line.startswith(b"data:"):
                    continue
                data = line[5:].strip()
                if data == b"[DONE]":
                    record.finished = now if shot.read_rate is None else clock()
                    return
                if shot.read_rate:
                    await asyncio.sleep(1 / shot.read_rate)
                _take(_decode(data), record, texts, now)
                if record.failure:
                    return
                if shot.cancel_after is not None and len(record.chunks) >= shot.cancel_after:
                    record.cancelled = True
                    return
        record.fail("incomplete stream", "it ended without [DONE]")
    finally:
        record.text = "".join(texts)


def _take(event: _Event, record: Record, texts: list[str], now: float) -> None:
    if event.error is not None:
        message = event.error.get("message") if isinstance(event.error, dict) else None
        record.fail("error event", str(message or event.error))
        return
    if usage := event.usage:
        record.prompt_tokens = usage.prompt_tokens
        record.output_tokens = usage.completion_tokens
        if details := usage.prompt_tokens_details:
            record.cached_tokens = details.cached_tokens
    for choice in event.choices:
        text, thought, call = choice.text, None, None
        if delta := choice.delta:
            text, thought = delta.content, delta.reasoning_content or delta.reasoning
            call = delta.tool_calls
        if choice.finish_reason:
            record.finish_reason = choice.finish_reason
        # Tokens without text (a special one) have no chunk of their own: the last chunk is then the first.
        if text or thought or call or (choice.finish_reason and not record.chunks):
            record.chunks.append(now)
        if text:
            texts.append(text)
