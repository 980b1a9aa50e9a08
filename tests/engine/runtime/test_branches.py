"""Beam search and forks in the engine: what they share, and that they end."""

from __future__ import annotations

import numpy as np
import pytest
from choices import gather
from conftest_runtime import VOCAB, make_engine, params

from octavo import _engine
from octavo.errors import RefusedError

PROMPT = np.random.default_rng(5).integers(2, VOCAB, 1000).tolist()
GREEDY = {"stop_token_ids": [], "logprobs": 0}


def beams(**fields: object) -> _engine.SamplingParams:
    return params(**{"n": 4, "beam_width": 4, "max_tokens": 24} | fields)


def test_beams_hold_the_prompt_once_and_each_at_most_what_it_wrote() -> None:
    engine = make_engine(1100, num_blocks=128, max_num_batched_tokens=1024)
    channel = engine.open_channel()
    engine.inject_fault("hold", seconds=0.005, times=1000)
    request = engine.submit(PROMPT, beams(max_tokens=40), channel)
    full, rest = divmod(len(PROMPT), 16)
    seen = []
    while not channel.wait(2):
        engine.pause()
        engine.audit()
        stats = engine.stats()
        computed = stats["tokens_computed"] - len(PROMPT)
        if computed > 4 and not channel.wait(0):
            assert computed % 4 == 0, "beams go in step"
            most = 4 * -(-(rest + computed // 4) // 16)
            assert full < stats["live_blocks"] <= full + most
            seen.append(stats["live_blocks"])
        engine.resume()
    assert len(gather(channel, {request: 4})[request]) == 4
    assert len(seen) > 3
    engine.audit()
    assert engine.stats()["tokens_computed"] == len(PROMPT) + 4 * 39
    assert engine.stats()["live_blocks"] == 0
    engine.shutdown()


def test_beams_come_best_first_each_with_its_score(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    request = engine.submit(PROMPT[:30], beams(length_penalty=0.5), channel)
    answers = gather(channel, {request: 4})[request]
    scores = [a.last.score for a in answers]
    assert scores == sorted(scores, reverse=True)
    for a in answers:
        assert a.last.score == pytest.approx(a.last.cumulative_logprob / len(a.tokens) ** 0.5)
        assert a.text == "".join("~" if t == VOCAB - 1 else chr(32 + t) for t in a.tokens)
    # What the model itself gives each of them, as a prompt.
    for a in answers:
        score = engine.submit(PROMPT[:30] + a.tokens, params(max_tokens=1, prompt_logprobs=0), channel)
        channel.wait(5000)
        (delta,) = channel.drain()
        assert delta.id == score
        total = sum(p[1] for p in delta.prompt_logprobs[30:])
        assert total == pytest.approx(a.last.cumulative_logprob, abs=1e-3)


def test_a_search_in_a_tiny_pool_is_cut_where_its_blocks_end() -> None:
    engine = make_engine(num_blocks=9)
    channel = engine.open_channel()
    request = engine.submit(PROMPT[:20], beams(max_tokens=400, stop_token_ids=[]), channel)
    assert [len(a.tokens) for a in gather(channel, {request: 4})[request]] == [28] * 4
    engine.audit()
    engine.shutdown()


@pytest.mark.parametrize("kind", ["throw", "non_finite", "cancel"])
def test_a_search_that_fails_or_is_cancelled_leaves_nothing(kind: str) -> None:
    engine = make_engine()
    channel = engine.open_channel()
    if kind != "cancel":
        engine.inject_fault(kind, token=PROMPT[29], times=100)
    request = engine.submit(PROMPT[:30], beams(max_tokens=300), channel)
    if kind == "cancel":
        engine.cancel(request)
    answers = gather(channel, {request: 4})[request]
    assert {a.finish for a in answers} == {"abort" if kind == "cancel" else "error"}
    engine.audit()
    assert engine.stats()["live_blocks"] == 0
    engine.shutdown()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"beam_width": 17}, "beam_width"),
        ({"n": 5}, "n"),
        ({"best_of": 4}, "best_of"),
        ({"temperature": 0.5}, "temperature"),
        ({"top_k": 1}, "top_k"),
        ({"logprobs": 1}, "logprobs"),
        ({"stop": ["a"]}, "stop"),
        ({"bad_words": [[1]]}, "bad_words"),
        ({"length_penalty": float("nan")}, "length_penalty"),
        ({"stop_token_ids": list(range(2, VOCAB - 1))}, "beam_width"),
    ],
)
def test_what_has_no_place_in_a_search_is_named(
    engine: _engine.Engine, fields: dict[str, object], param: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        engine.submit([2], beams(**fields), engine.open_channel())
    assert refused.value.param == param


@pytest.mark.slow
@pytest.mark.parametrize("caching", [True, False])
def test_a_fork_of_a_running_sequence_shares_its_blocks(caching: bool) -> None:
    engine = make_engine(1100, num_blocks=160, enable_prefix_caching=caching, max_num_batched_tokens=1024)
    channel = engine.open_channel()
    engine.inject_fault("hold", seconds=0.01, times=100)
    parent = engine.submit(PROMPT, params(max_tokens=60, **GREEDY), channel)
    while engine.stats()["generation_tokens"] < 20:
        channel.wait(100)
    engine.pause()
    engine.audit()
    before = engine.stats()
    forks = [engine.fork(parent, channel), engine.fork(parent, channel, position=900)]
    engine.resume()
    while engine.stats()["generation_tokens"] < before["generation_tokens"] + 6:
        pass
    engine.pause()
    engine.audit()
    after = engine.stats()
    engine.resume()
    steps = after["steps"] - before["steps"]
    assert after["tokens_computed"] - before["tokens_computed"] == 3 * steps
    assert after["live_blocks"] - before["live_blocks"] <= 2 * 2 + 1
    answers = gather(channel, {parent: 1, forks[0]: 1, forks[1]: 1})
    whole = PROMPT + answers[parent][0].tokens
    first = answers[forks[0]][0]
    assert first.last.prompt_tokens - len(PROMPT) == before["generation_tokens"]
    assert first.tokens[: 60 - before["generation_tokens"]] == whole[first.last.prompt_tokens :]
    second = answers[forks[1]][0]
    assert second.last.prompt_tokens == 900
    assert second.last.cached_tokens == 899
    engine.audit()
    assert engine.stats()["live_blocks"] == 0
    engine.shutdown()


def test_a_fork_of_an_ended_request_finds_its_blocks_in_the_cache() -> None:
    engine = make_engine(num_blocks=256)
    channel = engine.open_channel()
    parent = engine.submit(PROMPT[:100], params(n=2, max_tokens=30, **GREEDY), channel)
    tokens = gather(channel, {parent: 2})[parent][1].tokens
    for position in (None, 120, 64, 33):
        fork = engine.fork(parent, channel, choice=1, position=position)
        last = gather(channel, {fork: 2})[fork][0].last
        kept = position or 130
        assert last.prompt_tokens == kept
        assert last.cached_tokens >= (kept - 1) // 16 * 16
        if position == 120:
            again = engine.fork(fork, channel, position=121, params=params(max_tokens=4))
            assert gather(channel, {again: 1})[again][0].tokens == tokens[21:25]
    engine.audit()
    engine.shutdown()


def test_forks_of_what_is_not_there_end_with_an_error(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    parent = engine.submit(PROMPT[:10], params(n=2, max_tokens=5, **GREEDY), channel)
    gather(channel, {parent: 2})
    engine.inject_fault("hold", seconds=0.02, times=20)
    search = engine.submit(PROMPT[:10], beams(max_tokens=400), channel)
    # One error for each choice that was asked for: by the parameters given, else by the parent's.
    for request, fields, n, param in (
        (10**6, {}, 1, "request"),
        (parent, {"choice": 2, "params": params(n=3)}, 3, "request"),
        (parent, {"position": 16}, 2, "position"),
        (parent, {"position": 0}, 2, "position"),
        (search, {"params": params()}, 1, "request"),
    ):
        fork = engine.fork(request, channel, **fields)
        for answer in gather(channel, {fork: n}, others={search: 4})[fork]:
            assert answer.finish == "error"
            assert answer.last.error[1] == param
    with pytest.raises(RefusedError, match="n must be at most"):
        engine.fork(parent, channel, params=params(n=17))
