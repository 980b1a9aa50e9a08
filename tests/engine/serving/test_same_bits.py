"""The same request gives the same tokens and the same logprobs, bit for bit, whatever the company it is in."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from loaded_engine import Served, params

pytestmark = pytest.mark.slow

# 32 prompts of different length, each once greedy and once seeded.
LENGTHS = [3 + 4 * i for i in range(32)]
NEW_TOKENS = 12

Answers = list[tuple[list[int], list[Any]]]


def requests(served: Served) -> list[tuple[list[int], Any]]:
    out = []
    for i, length in enumerate(LENGTHS):
        prompt = served.prompt(length, start=5 * i)
        out.append((prompt, params(max_tokens=NEW_TOKENS, logprobs=3)))
        out.append(
            (prompt, params(max_tokens=NEW_TOKENS, logprobs=3, temperature=0.9, top_p=0.95, seed=1000 + i))
        )
    return out


def together(served: Served) -> Answers:
    ids = [served.submit(prompt, parameters) for prompt, parameters in requests(served)]
    return [(r.ids, r.logprobs) for r in served.finish(ids)]


@pytest.fixture(scope="module")
def alone(smollm2: Path) -> Answers:
    """Every request by itself on a cache that holds nothing, in one chunk, with one thread."""
    with Served(smollm2, threads=1, enable_prefix_caching=False) as served:
        answers = []
        for prompt, parameters in requests(served):
            (result,) = served.finish([served.submit(prompt, parameters)])
            assert result.cached_tokens == 0 and result.finish == "length"
            answers.append((result.ids, result.logprobs))
    assert len({tuple(ids) for ids, _ in answers}) > 40, "the requests are too much alike to tell anything"
    return answers


def assert_same(got: Answers, expected: Answers) -> None:
    for i, (a, b) in enumerate(zip(got, expected, strict=True)):
        kind = "seeded" if i % 2 else "greedy"
        where = f"{kind} request of {LENGTHS[i // 2]} tokens"
        assert a[0] == b[0], f"token ids differ: {where}"
        assert a[1] == b[1], f"logprobs differ: {where}"


@pytest.mark.parametrize("chunk", [16, 64, 512])
@pytest.mark.parametrize("threads", [1, 2])
def test_together_in_chunks_cold_then_warm(smollm2: Path, alone: Answers, chunk: int, threads: int) -> None:
    with Served(smollm2, max_num_batched_tokens=chunk, threads=threads) as served:
        assert_same(together(served), alone)
        hits = served.engine.stats()["prefix_hits"]
        assert_same(together(served), alone)
        assert served.engine.stats()["prefix_hits"] > hits, "the second round found nothing in the cache"
        served.engine.audit()


def test_under_preemption(smollm2: Path, alone: Answers) -> None:
    with Served(smollm2, num_blocks=24, max_model_len=256) as served:
        assert_same(together(served), alone)
        stats = served.engine.stats()
        assert stats["preemptions"] > 0
        assert stats["live_blocks"] == 0
        served.engine.audit()


@pytest.mark.parametrize("block_size", [8, 32])
def test_other_block_sizes(smollm2: Path, alone: Answers, block_size: int) -> None:
    with Served(smollm2, block_size=block_size, num_blocks=4096) as served:
        assert_same(together(served), alone)
