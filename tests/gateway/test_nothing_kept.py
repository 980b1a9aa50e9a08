"""What a request leaves in the server's memory once it has ended, however it ended: nothing."""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import aiohttp
import pytest
from served import Served

from octavo_bench.soak.driver import Driver, quiet_answers
from octavo_bench.soak.questions import absurdities, questions

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
WINDOW = 1024
ROUND_SECONDS = 5.0


def grown(before: dict[str, Any], after: dict[str, Any], requests: int) -> str:
    """What there is more of than so many requests may leave, counters and caches that fill up included."""
    kinds = {kind: number - before["objects"].get(kind, 0) for kind, number in after["objects"].items()}
    more: dict[str, int] = {kind: number for kind, number in kinds.items() if number > requests // 10}
    for kind, limit in ("blocks", requests), ("native", 1024 * requests):
        if after[kind] - before[kind] >= limit:
            more[kind] = after[kind] - before[kind]
    return f"{more} after {requests} requests" if more else ""


async def load(served: Served, count: Any) -> str:
    """What the last of some rounds of requests of every kind left behind.

    Three rounds, and up to two more while the last has left something: what is kept for requests grows with each,
    what the allocator and caches need for a new worst case does not.
    """
    base, asked = f"http://127.0.0.1:{served.port}", questions(12, 5)
    held: list[dict[str, Any]] = []
    left = ""
    async with aiohttp.ClientSession() as session:
        expected = await quiet_answers(session, base, asked, "k")
    # Without keys whoever comes may enter.
    absurd = [a for a in absurdities(WINDOW) if a.keyed]
    for seed in range(5):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            driver = Driver(session, base, asked, absurd, expected, ["k"], seed)
            await driver.together(range(len(asked)))
            await driver.arrive(rate=1000.0, seconds=ROUND_SECONDS, most=24)
            await driver.drain()
        assert not driver.tally.failures
        assert driver.ended >= 20
        assert await asyncio.to_thread(served.settles, 20.0)
        await asyncio.sleep(1.0)  # the server notices that the connections are gone
        held.append(await asyncio.to_thread(count))
        if seed >= 2 and not (left := grown(held[-2], held[-1], driver.ended)):
            break
    return left


@pytest.mark.unsanitized("counts the allocator's blocks, and the sanitizers have their own")
def test_requests_leave_nothing_behind() -> None:
    arguments = ("--port", "0", "--served-model-name", "counting", "--max-model-len", str(WINDOW))
    process = subprocess.Popen(
        [
            sys.executable,
            str(HERE / "counting_server.py"),
            "smollm2",
            *arguments,
            "--kv-cache-memory",
            "24MiB",
        ],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert process.stdin and process.stdout

    def count() -> dict[str, Any]:
        assert process.stdin and process.stdout
        process.stdin.write("\n")
        process.stdin.flush()
        while not (line := process.stdout.readline()).startswith("{"):
            assert line, "the server is gone"
        held: dict[str, Any] = json.loads(line)
        return held

    try:
        found = re.match(r"(\S+) answers at http://127\.0\.0\.1:(\d+)/v1", process.stdout.readline())
        assert found, "the server did not start"
        left = asyncio.run(load(Served(int(found[2]), process.pid, found[1]), count))
    finally:
        process.kill()
        process.communicate()
    assert not left, left
