"""A burst of requests behind one system prompt computes and holds that prompt once."""

from __future__ import annotations

from pathlib import Path

import pytest
from loaded_engine import Served, params

pytestmark = pytest.mark.slow

SYSTEM = 1000  # tokens: 62 full blocks and 8 tokens more
REQUESTS = 100
OWN = 9  # tokens of each request after the system prompt
NEW_TOKENS = 4


def prompts(served: Served) -> list[list[int]]:
    """The same beginning; the first token after it differs between all of them."""
    system = served.prompt(SYSTEM)
    tail = served.prompt(OWN - 1, start=40)
    return [[*system, 2000 + 7 * i, *tail] for i in range(REQUESTS)]


def prefix_tokens_computed(served: Served, requests: int) -> int:
    """What was computed beyond each request's own tokens; the last token of an answer is never computed."""
    return int(served.engine.stats()["tokens_computed"]) - requests * (OWN + NEW_TOKENS - 1)


def own_blocks() -> int:
    """Blocks that one request writes: the one in which its own tokens begin and what follows."""
    return -(-(SYSTEM % 16 + OWN + NEW_TOKENS) // 16)


def test_the_prefix_is_computed_once_and_held_once(smollm2: Path) -> None:
    with Served(smollm2) as served:
        ids = [served.submit(prompt, params(max_tokens=NEW_TOKENS)) for prompt in prompts(served)]
        running, live = 0, 0

        def done() -> bool:
            nonlocal running, live
            stats = served.engine.stats()
            running, live = max(running, stats["running"]), max(live, stats["live_blocks"])
            return all(served.results[i].finish for i in ids)

        served.drain_until(done)
        results = served.finish(ids)
        assert all(r.finish == "length" and len(r.ids) == NEW_TOKENS for r in results)
        assert prefix_tokens_computed(served, REQUESTS) <= 1.1 * SYSTEM
        # 62 blocks are shared, the 8 tokens after them are copied: followers compute no token of the prompt.
        assert [r.cached_tokens for r in results[1:]] == [SYSTEM] * (REQUESTS - 1)
        assert running == REQUESTS
        assert live <= SYSTEM // 16 + REQUESTS * own_blocks()
        stats = served.engine.stats()
        assert stats["live_blocks"] == 0
        assert stats["free_blocks"] + stats["cached_blocks"] == stats["total_blocks"]
        served.engine.audit()


def test_answers_do_not_depend_on_the_burst(smollm2: Path) -> None:
    with Served(smollm2) as served:
        some = prompts(served)[::25]
        burst = served.finish([served.submit(p, params(max_tokens=NEW_TOKENS, logprobs=1)) for p in some])
    with Served(smollm2, enable_prefix_caching=False) as served:
        for prompt, result in zip(some, burst, strict=True):
            (cold,) = served.finish([served.submit(prompt, params(max_tokens=NEW_TOKENS, logprobs=1))])
            assert (cold.ids, cold.logprobs) == (result.ids, result.logprobs)


def test_the_leader_is_cancelled_midway(smollm2: Path) -> None:
    with Served(smollm2, max_num_batched_tokens=64) as served:
        engine = served.engine
        leader, *followers = [
            served.submit(prompt, params(max_tokens=NEW_TOKENS)) for prompt in prompts(served)
        ]
        served.drain_until(lambda: engine.stats()["tokens_computed"] >= 300)
        engine.cancel(leader)
        seen = engine.stats()["tokens_computed"]
        assert seen < SYSTEM, "the prefix was finished before the leader could be cancelled"
        results = served.finish(followers)
        (first,) = served.finish([leader])
        assert first.finish == "abort" and not first.ids
        assert all(r.finish == "length" and len(r.ids) == NEW_TOKENS for r in results)
        # What the leader had computed stays in the cache: at most the chunk under way is lost.
        assert prefix_tokens_computed(served, len(followers)) <= 1.1 * SYSTEM
        assert engine.stats()["live_blocks"] == 0
        engine.audit()
