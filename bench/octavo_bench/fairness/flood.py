"""A light tenant beside one that keeps a thousand requests queued, and alone."""

from __future__ import annotations

import asyncio
import random
import time
from dataclasses import dataclass

from octavo_bench.fairness.requests import Size, complete
from octavo_bench.own_server import ServedProcess

FLOODING, LIGHT = 0, 1


@dataclass(frozen=True, slots=True)
class LightLoad:
    """One request at a time, with a pause of random length (mean ``pause`` seconds) behind each."""

    size: Size
    pause: float


class Flood:
    """Keeps ``depth`` requests of ``size`` queued or running while its ``async with`` lasts."""

    def __init__(self, server: ServedProcess, depth: int, size: Size, seed: int) -> None:
        self._server, self._depth, self._size = server, depth, size
        self._draw = random.Random(seed)
        self._askers: list[asyncio.Task[None]] = []
        self.answered = 0

    async def __aenter__(self) -> Flood:
        self._askers = [asyncio.create_task(self._ask_on()) for _ in range(self._depth)]
        give_up = time.perf_counter() + 120
        while True:
            now = await self._server.samples()
            if now["vllm:num_requests_running"] + now["vllm:num_requests_waiting"] >= self._depth:
                return self
            if time.perf_counter() > give_up:
                raise RuntimeError("the flood does not build up")
            await asyncio.sleep(0.1)

    async def __aexit__(self, *error: object) -> None:
        for asker in self._askers:
            asker.cancel()
        await asyncio.gather(*self._askers, return_exceptions=True)

    async def _ask_on(self) -> None:
        while True:
            await complete(self._server, FLOODING, self._size, self._draw)
            self.answered += 1

    def check(self) -> None:
        """Raises what ended one of its requests."""
        for asker in self._askers:
            if asker.done():
                asker.result()


async def first_tokens(
    server: ServedProcess, light: LightLoad, count: int, draw: random.Random
) -> list[float]:
    """Seconds to the first token of each of ``count`` requests of the light tenant."""
    out = []
    for _ in range(count):
        out.append(await complete(server, LIGHT, light.size, draw))
        await asyncio.sleep(draw.expovariate(1 / light.pause))
    return out
