"""A cache that is smaller than the window: 50 blocks of 16 tokens for requests of up to 2,048."""

from __future__ import annotations

import json
import socket
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import psutil
import pytest
from served import Served, octavo_serve

BLOCKS, BLOCK, SEATS = 50, 16, 4
POOL = BLOCKS * BLOCK
TOKEN_BYTES = 2 * 2 * 2 * 8 * 2  # layers, keys and values, heads, their width, float16


@pytest.fixture(scope="module")
def small(tiny_folder: Path) -> Iterator[Served]:
    flags = (
        "--max-model-len",
        "2048",
        "--threads",
        "1",
        "--max-num-seqs",
        str(SEATS),
        "--log-level",
        "error",
    )
    with octavo_serve(str(tiny_folder), *flags, "--kv-cache-memory", str(POOL * TOKEN_BYTES)) as server:
        assert blocks(server) == BLOCKS
        yield server


def blocks(small: Served) -> float:
    return sum(small.metric(f"octavo:kv_blocks_{kind}") for kind in ("live", "cached", "free"))


def test_what_exceeds_the_pool_is_refused_at_once_and_holds_nobody_up(small: Served) -> None:
    """Behaviours 1 and 2."""

    def timed(**fields: Any) -> tuple[int, Any, float]:
        start = time.monotonic()
        return *small.complete(**fields), time.monotonic() - start

    assert all(small.complete(prompt=[i] * 300, max_tokens=2)[0] == 200 for i in range(8))
    with ThreadPoolExecutor(15) as pool:
        large = [pool.submit(timed, prompt=[7] * 1000, stream=i % 2 == 0) for i in range(5)]
        others = [pool.submit(timed, prompt=[10 + i] * 20, max_tokens=4) for i in range(10)]
        for status, body, seconds in (task.result(30) for task in large):
            assert status == 400 and body["error"]["code"] == "context_length_exceeded", body
            assert f"{POOL} tokens" in body["error"]["message"] and seconds < 2
        assert [task.result(30)[0] for task in others] == [200] * 10


@pytest.mark.parametrize("length", range(POOL - 2, POOL + 3))
def test_every_length_around_the_pool_is_answered(small: Served, length: int) -> None:
    """Behaviour 3: a prompt needs room for one token more; an answer ends where the pool does."""
    for most in (1, 20):
        status, body = small.complete(prompt=[7] * length, max_tokens=most, ignore_eos=True)
        if length + 1 <= POOL:
            assert status == 200 and body["choices"][0]["finish_reason"] == "length", body
            assert 1 <= body["usage"]["completion_tokens"] <= most
        else:
            assert status == 400 and f"{POOL} tokens" in body["error"]["message"], body
    assert small.settles() and blocks(small) == BLOCKS


@pytest.mark.slow
def test_a_thousand_that_hang_up_leave_the_server_as_quick_as_before(small: Served) -> None:
    """Behaviour 83: of 64 at once most wait. Time is the process's own, so that no neighbour counts."""
    process = psutil.Process(small.pid)
    salts = iter(range(100))

    def work() -> float:
        spent, salt = sum(process.cpu_times()[:2]), str(next(salts))
        with ThreadPoolExecutor(SEATS) as pool:
            fields = {"max_tokens": 100, "ignore_eos": True, "cache_salt": salt}
            asked = [pool.submit(small.complete, prompt=[100 + i] * 60, **fields) for i in range(16)]
            assert [task.result(60)[1]["usage"]["completion_tokens"] for task in asked] == [100] * 16
        return sum(process.cpu_times()[:2]) - spent

    def hang_up(i: int) -> None:
        body = json.dumps({"prompt": [i] * 150, "max_tokens": 600, "ignore_eos": True, "stream": i % 2 == 0})
        with socket.create_connection(("127.0.0.1", small.port)) as sock:
            head = f"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
            sock.sendall((head + body).encode())
            time.sleep(i % 7 * 0.05)

    work()
    fresh = min(work() for _ in range(3))
    with ThreadPoolExecutor(64) as pool:
        list(pool.map(hang_up, range(1000)))
    assert small.settles(5) and blocks(small) == BLOCKS
    assert small.metric("vllm:request_success_total") > 300, "hardly any came as far as the engine"
    assert min(work() for _ in range(3)) < 1.5 * fresh
