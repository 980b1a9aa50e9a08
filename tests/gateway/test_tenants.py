"""Tenants share neither cached prefixes nor what could tell of them."""

from __future__ import annotations

import json
import math
import time
from concurrent.futures import ThreadPoolExecutor
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Script, ScriptedEngine, spoken
from served import Served, octavo_serve
from serving import HELLO, run, serving

from octavo_gateway.api.cache_names import cache_namespace

PAIRS = 30


def told_apart(quicker: int) -> bool:
    """Sign test: whether a fair coin falls as one-sidedly once in a thousand times at most."""
    tail = sum(math.comb(PAIRS, k) for k in range(min(quicker, PAIRS - quicker) + 1))
    return 2 * tail / 2**PAIRS < 1e-3


NAMES = st.one_of(st.none(), st.text(min_size=1, max_size=8))


@given(NAMES, NAMES, NAMES, NAMES)
def test_a_namespace_is_its_tenant_and_salt(
    a: str | None, b: str | None, c: str | None, d: str | None
) -> None:
    """What is told apart by kind and length cannot be made to meet."""
    assert (cache_namespace(a, b) == cache_namespace(c, d)) == ((a, b) == (c, d))
    assert 0 <= cache_namespace(a, b) < 2**64


def test_the_key_decides_and_a_salt_only_narrows() -> None:
    async def scenario() -> list[int]:
        scripted = ScriptedEngine(Script(steps=spoken("x")))
        async with serving(
            scripted, server={"named_keys": "red=r1 red=r2 blue=b", "api_keys": ("k",)}
        ) as client:
            for key, salt in (("r1", None), ("r2", None), ("b", None), ("k", None), ("r1", "s"), ("b", "s")):
                headers = {"Authorization": f"Bearer {key}"}
                body = {**HELLO, "user": "red", **({"cache_salt": salt} if salt else {})}
                status, _, _ = await client.post("/v1/chat/completions", body, headers=headers)
                assert status == 200
        payers = [stream.tenant for stream in scripted.submitted]
        assert payers[0] == payers[1] == payers[4] and payers[2] == payers[5] and len(set(payers)) == 3
        return [stream.namespace for stream in scripted.submitted]

    red, again, blue, plain, red_salted, blue_salted = run(scenario())
    assert red == again and len({red, blue, plain, red_salted, blue_salted, 0}) == 6


@pytest.mark.slow
def test_a_flood_of_one_tenant_does_not_hold_up_another() -> None:
    flags = ("--max-model-len", "512", "--threads", "1", "--max-num-seqs", "4", "--crash-dir", "")
    done: list[str] = []
    with (
        octavo_serve(*flags, "--api-key", "flood", "--api-key", "light") as served,
        ThreadPoolExecutor(41) as pool,
    ):

        def ask(key: str, i: int) -> None:
            connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
            body = {"prompt": [100 + i] * 20, "max_tokens": 20, "ignore_eos": True}
            headers = {"Authorization": f"Bearer {key}"}
            connection.request("POST", "/v1/completions", json.dumps(body), headers)
            assert json.loads(connection.getresponse().read())["usage"]["completion_tokens"] == 20
            done.append(key)

        flood = [pool.submit(ask, "flood", i) for i in range(40)]
        time.sleep(0.1)
        pool.submit(ask, "light", 99).result()
        for other in flood:
            other.result()
    assert done.index("light") < 20 and len(done) == 41


@pytest.mark.slow
def test_neither_cached_tokens_nor_time_tells_what_another_tenant_sent(tmp_path: Path) -> None:
    """Behaviour 12: a prompt that another tenant has sent is as new as one that nobody has sent."""
    file = tmp_path / "keys"
    file.write_text("red=r\nblue=b\n")
    file.chmod(0o600)

    def first_token(served: Served, key: str, prompt: str) -> tuple[int, float]:
        """cached_tokens, and seconds to the answer of one token."""
        connection = HTTPConnection("127.0.0.1", served.port, timeout=60)
        body: dict[str, Any] = {"prompt": prompt, "max_tokens": 1, "temperature": 0}
        start = time.perf_counter()
        headers = {"Authorization": f"Bearer {key}"}
        connection.request("POST", "/v1/completions", json.dumps(body), headers)
        answer = json.loads(connection.getresponse().read())
        return answer["usage"]["prompt_tokens_details"]["cached_tokens"], time.perf_counter() - start

    flags = (
        "--max-model-len",
        "1024",
        "--threads",
        "1",
        "--max-num-seqs",
        "16",
        "--kv-cache-memory",
        "128MiB",
    )
    with octavo_serve(*flags, "--api-key-file", str(file)) as served:
        # Whatever else the machine does strikes both of a pair alike, so it is counted who of the two was quicker.
        quicker = cached_quicker = 0
        for i in range(PAIRS):
            secret, other = (f"{word} {i}: " + "one two three four " * 30 for word in ("Secret", "Other"))
            assert first_token(served, "r", secret)[0] < 16
            # Which of the two is asked first takes turns, so that a machine that slows down favours neither.
            seconds = {}
            for prompt in (secret, other) if i % 2 else (other, secret):
                cached, seconds[prompt] = first_token(served, "b", prompt)
                assert cached < 16
            quicker += seconds[secret] < seconds[other]
            cached, own = first_token(served, "r", secret)
            assert cached >= 100
            cached_quicker += own < seconds[other]
    assert told_apart(cached_quicker), "a cached prompt must be told by its time here"
    assert not told_apart(quicker), f"quicker in {quicker} of {PAIRS} pairs"
