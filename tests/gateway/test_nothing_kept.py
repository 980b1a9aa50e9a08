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
ROUND_SECONDS = 8.0


async def load(served: Served, count: Any) -> tuple[list[dict[str, Any]], list[int]]:
    """What is held after each of three rounds of requests of every kind, and how many there were until then."""
    base, asked = f"http://127.0.0.1:{served.port}", questions(12, 5)
    held, ended = [], [0]
    async with aiohttp.ClientSession() as session:
        expected = await quiet_answers(session, base, asked, "k")
    # Without keys whoever comes may enter.
    absurd = [a for a in absurdities(WINDOW) if a.keyed]
    for seed in range(3):
        async with aiohttp.ClientSession(connector=aiohttp.TCPConnector(limit=0)) as session:
            driver = Driver(session, base, asked, absurd, expected, ["k"], seed)
            await driver.together(range(len(asked)))
            await driver.arrive(rate=1000.0, seconds=ROUND_SECONDS, most=24)
            await driver.drain()
        assert not driver.tally.failures
        assert await asyncio.to_thread(served.settles, 20.0)
        await asyncio.sleep(1.0)  # the server notices that the connections are gone
        held.append(await asyncio.to_thread(count))
        ended.append(ended[-1] + driver.ended)
    return held, ended[1:]


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
        held, ended = asyncio.run(load(Served(int(found[2]), process.pid, found[1]), count))
    finally:
        process.kill()
        process.communicate()
    requests = ended[2] - ended[1]
    assert requests >= 20
    grown = {
        kind: held[2]["objects"].get(kind, 0) - held[1]["objects"].get(kind, 0) for kind in held[2]["objects"]
    }
    more = {kind: number for kind, number in grown.items() if number > requests // 10}
    assert not more, (more, requests)
    assert held[2]["blocks"] - held[1]["blocks"] < requests
    assert held[2]["native"] - held[1]["native"] < 1024 * requests, (held[1]["native"], held[2]["native"])
