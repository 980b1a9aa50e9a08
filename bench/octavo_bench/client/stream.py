"""One streamed completion: body out, server-sent events in."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import aiohttp

from octavo_bench.client.records import Record, Shot


def request_body(shot: Shot, model: str) -> dict[str, Any]:
    """The body of a streamed, greedy ``/v1/completions`` request."""
    prompt = shot.prompt if isinstance(shot.prompt, str) else list(shot.prompt)
    body: dict[str, Any] = {
        "model": model,
        "prompt": prompt,
        "max_tokens": shot.max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    body.update(shot.extra)
    return body


async def send(
    session: aiohttp.ClientSession,
    url: str,
    model: str,
    shot: Shot,
    record: Record,
    clock: Callable[[], float],
) -> None:
    """Sends one shot and fills its record; every failure ends up in ``record.error``."""
    record.dispatched = clock()
    try:
        async with session.post(url, json=request_body(shot, model)) as response:
            if response.status != 200:
                text = (await response.text())[:300]
                record.error = f"HTTP {response.status}: {text}"
                return
            await _read_events(response, record, clock)
    except (aiohttp.ClientError, OSError, TimeoutError, ValueError) as e:
        record.error = f"{type(e).__name__}: {e}"[:300]


async def _read_events(response: aiohttp.ClientResponse, record: Record, clock: Callable[[], float]) -> None:
    done = False
    async for line in response.content:
        if not line.startswith(b"data:"):
            continue
        data = line[5:].strip()
        if data == b"[DONE]":
            done = True
            break
        event = json.loads(data)
        if "error" in event:
            record.error = str(event["error"].get("message", event["error"]))[:300]
            return
        _take(event, record, clock())
    if not done:
        record.error = "the stream ended without [DONE]"
        return
    record.finished = clock()


def _take(event: dict[str, Any], record: Record, now: float) -> None:
    usage = event.get("usage")
    if usage:
        record.prompt_tokens = usage.get("prompt_tokens")
        record.output_tokens = usage.get("completion_tokens")
        details = usage.get("prompt_tokens_details") or {}
        record.cached_tokens = details.get("cached_tokens")
    for choice in event.get("choices", ()):
        text = choice.get("text")
        if text is None:
            text = (choice.get("delta") or {}).get("content")
        if text:
            record.text += text
            record.chunks.append(now)
            if record.first_chunk is None:
                record.first_chunk = now
        if choice.get("finish_reason"):
            record.finish_reason = choice["finish_reason"]
