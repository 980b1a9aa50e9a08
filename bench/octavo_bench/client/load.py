"""Runs a load: each shot at its due time, whatever became of the ones before."""

from __future__ import annotations

import asyncio
import time

import aiohttp

from octavo_bench.client.records import Load, Record
from octavo_bench.client.stream import send

# aiohttp's default of 64 KiB per read stalls fast streams; a large buffer costs nothing here.
READ_BUFFER = 1 << 20


async def run_load(
    base_url: str, model: str, load: Load, *, api_key: str | None = None, timeout: float = 600.0
) -> list[Record]:
    """Sends ``load`` to ``base_url`` (up to and including ``/v1``) and returns one record per shot, in order.

    The run is bounded: a request that takes longer than ``timeout`` seconds becomes a failure.
    """
    headers = {"Authorization": f"Bearer {api_key}"} if api_key else {}
    gate = asyncio.Semaphore(load.concurrency or max(1, len(load.shots)))
    records = [Record(due=shot.due) for shot in load.shots]
    url = base_url.rstrip("/") + "/completions"
    async with aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=0),
        timeout=aiohttp.ClientTimeout(total=timeout),
        headers=headers,
        read_bufsize=READ_BUFFER,
    ) as session:
        start = time.perf_counter()

        def clock() -> float:
            return time.perf_counter() - start

        async def fire(index: int) -> None:
            shot = load.shots[index]
            await asyncio.sleep(max(0.0, shot.due - clock()))
            async with gate:
                await send(session, url, model, shot, records[index], clock)

        await asyncio.gather(*(fire(i) for i in range(len(load.shots))))
    return records
