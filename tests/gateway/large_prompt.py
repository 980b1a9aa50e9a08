"""Does a 5 MB prompt delay anyone? Streams and /health before and while such prompts are tokenized.

    python tests/gateway/large_prompt.py

starts a server with the default model and prints the figures.
"""

from __future__ import annotations

import asyncio
import json
import statistics
import time
from dataclasses import dataclass
from typing import Any

import aiohttp
from served import octavo_serve

STREAMS = 64
ARGUMENTS = ("--max-model-len", "2048", "--no-length-shortcut", "--log-level", "error")
_TEXT = ("The quick brown fox jumps over the lazy dog, and " * 110_000)[: 5 * 2**20]
LARGE = {
    "/v1/completions": {"prompt": _TEXT},
    "/v1/chat/completions": {"messages": [{"role": "user", "content": _TEXT}]},
}


@dataclass
class Figures:
    health_p99: float
    usual_gaps: tuple[
        float, float
    ]  # between two chunks of a stream without large prompts: 99th percentile, largest
    gaps: tuple[float, float]  # the same while they are tokenized
    worst_health: float
    tokenizing: float
    chunks: int
    statuses: list[int]

    def __str__(self) -> str:
        return (
            f"/health p99 {self.health_p99 * 1e3:.1f} ms, worst {self.worst_health * 1e3:.1f} ms; "
            f"between chunks p99, worst: usual {_ms(self.usual_gaps)}, beside large prompts {_ms(self.gaps)}; "
            f"{len(self.statuses)} large prompts in {self.tokenizing:.1f} s; {self.chunks} chunks"
        )


def _summary(gaps: list[float]) -> tuple[float, float]:
    return statistics.quantiles(gaps, n=100)[98], max(gaps)


def _ms(gaps: tuple[float, float]) -> str:
    return ", ".join(f"{gap * 1e3:.0f} ms" for gap in gaps)


class _Watch:
    """The times between two chunks of each stream."""

    def __init__(self) -> None:
        self.gaps: list[tuple[float, float]] = []  # (when, how long)
        self.all_started = asyncio.Event()

    async def follow(self, session: aiohttp.ClientSession, i: int) -> None:
        body = {"prompt": f"Story {i}: once", "max_tokens": 1500, "ignore_eos": True, "stream": True}
        last = 0.0
        async with session.post("/v1/completions", json=body) as response:
            async for line in response.content:
                if line.startswith(b"data: "):
                    now = time.monotonic()
                    if last:
                        self.gaps.append((now, now - last))
                        if len(self.gaps) > 4 * STREAMS:
                            self.all_started.set()
                    last = now


async def measure(port: int, seconds: float = 3.0) -> Figures:
    """`seconds` of usual traffic, then a large prompt through each route."""
    connector = aiohttp.TCPConnector(limit=0)
    async with aiohttp.ClientSession(f"http://127.0.0.1:{port}", connector=connector) as session:
        watch = _Watch()
        streams = [asyncio.create_task(watch.follow(session, i)) for i in range(STREAMS)]
        await watch.all_started.wait()
        started = time.monotonic()
        await asyncio.sleep(seconds)
        began = time.monotonic()
        usual = [gap for at, gap in watch.gaps if started < at <= began]
        health: list[float] = []
        poll = asyncio.create_task(_poll(session, health))
        statuses = [await _send(session, path, body) for path, body in LARGE.items()]
        ended = time.monotonic()
        await asyncio.sleep(0.5)
        poll.cancel()
        beside = [gap for at, gap in watch.gaps if began < at <= ended + 0.5]
        for stream in streams:
            stream.cancel()
        await asyncio.gather(*streams, return_exceptions=True)
    return Figures(
        health_p99=statistics.quantiles(health, n=100)[98],
        usual_gaps=_summary(usual),
        gaps=_summary(beside),
        worst_health=max(health),
        tokenizing=ended - began,
        chunks=len(watch.gaps),
        statuses=statuses,
    )


async def _send(session: aiohttp.ClientSession, path: str, body: dict[str, Any]) -> int:
    data = json.dumps({**body, "max_tokens": 1}).encode()
    async with session.post(path, data=data, headers={"Content-Type": "application/json"}) as response:
        await response.read()
        return response.status


async def _poll(session: aiohttp.ClientSession, health: list[float]) -> None:
    while True:
        sent = time.monotonic()
        async with session.get("/health") as response:
            await response.read()
        health.append(time.monotonic() - sent)
        await asyncio.sleep(0.01)


if __name__ == "__main__":
    with octavo_serve(*ARGUMENTS) as server:
        print(asyncio.run(measure(server.port)))
