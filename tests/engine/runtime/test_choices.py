"""Several sequences of one prompt: each its own random numbers, all one prompt's blocks."""

from __future__ import annotations

import numpy as np
import pytest
from choices import Answer, gather
from conftest_runtime import VOCAB, make_engine, params

from octavo import _engine
from octavo.errors import RefusedError

PROMPT = np.random.default_rng(3).integers(2, VOCAB, 1000).tolist()
HOT = {"temperature": 1.0, "seed": 11, "stop_token_ids": []}


def run(engine: _engine.Engine, prompt: list[int], p: _engine.SamplingParams, **options: int) -> list[Answer]:
    channel = engine.open_channel()
    request = engine.submit(prompt, p, channel, **options)
    return gather(channel, {request: p.n})[request]


def alone(engine: _engine.Engine, prompt: list[int], choice: int, **fields: object) -> Answer:
    return run(engine, prompt, params(**fields), first_choice=choice)[0]


def same(a: Answer, b: Answer) -> bool:
    return (a.tokens, a.text, a.logprobs, a.finish) == (b.tokens, b.text, b.logprobs, b.finish)


@pytest.fixture(scope="module")
def references() -> list[Answer]:
    """What eight requests answer, each alone, with the choices' numbers 0 to 7."""
    engine = make_engine(enable_prefix_caching=False)
    answers = [alone(engine, PROMPT[:50], i, max_tokens=30, logprobs=2, **HOT) for i in range(8)]
    engine.shutdown()
    assert len({tuple(a.tokens) for a in answers}) == 8
    return answers


def test_each_choice_is_what_a_request_of_its_own_would_be(references: list[Answer]) -> None:
    engine = make_engine()
    answers = run(engine, PROMPT[:50], params(n=8, max_tokens=30, logprobs=2, **HOT))
    assert all(map(same, answers, references))
    engine.audit()
    stats = engine.stats()
    assert stats["generation_tokens"] == 240
    assert stats["prompt_tokens"] == 50
    assert stats["live_blocks"] == 0
    engine.shutdown()


def test_neither_company_nor_preemption_nor_chunks_change_a_choice(references: list[Answer]) -> None:
    engine = make_engine(num_blocks=28, max_num_batched_tokens=16, max_num_seqs=32)
    channel = engine.open_channel()
    engine.pause()
    want = {}
    for i in range(4):
        request = engine.submit(PROMPT[:50], params(n=8, max_tokens=30, logprobs=2, **HOT), channel)
        want[request] = references
        other = engine.submit(PROMPT[i * 7 : i * 7 + 40], params(n=2, max_tokens=25, seed=i), channel)
        want[other] = None
    engine.resume()
    got = gather(channel, {i: 2 if w is None else 8 for i, w in want.items()})
    for request, answers in got.items():
        assert want[request] is None or all(map(same, answers, want[request]))
    engine.audit()
    assert engine.stats()["preemptions"] > 0
    engine.shutdown()


def test_the_prompt_is_held_once_and_each_choice_holds_what_it_wrote() -> None:
    n, new = 8, 40
    engine = make_engine(1100, num_blocks=128, max_num_batched_tokens=1024)
    channel = engine.open_channel()
    engine.inject_fault("hold", times=1000, seconds=0.01)  # a step lasts long enough to be looked at
    request = engine.submit(PROMPT, params(n=n, max_tokens=new, **HOT), channel)
    full, rest = divmod(len(PROMPT), 16)
    seen = 0
    done = False
    told = [0] * n
    while not done:
        channel.wait(1000)
        engine.pause()
        engine.audit()
        for delta in channel.drain():
            assert delta.id == request
            told[delta.choice] += len(delta.token_ids)
            done = done or delta.finish is not None
        stats = engine.stats()
        if not done and min(told) > 1:
            # The token drawn last is not written yet.
            own = sum(-(-(rest + count - 1) // 16) for count in told)
            assert stats["live_blocks"] == full + own
            assert stats["live_blocks"] + stats["free_blocks"] + stats["cached_blocks"] == 128
            seen += 1
        engine.resume()
    assert seen > 3
    engine.audit()
    assert engine.stats()["tokens_computed"] == len(PROMPT) + n * (new - 1)
    engine.shutdown()


def test_stops_end_each_choice_on_its_own() -> None:
    engine = make_engine()
    free = run(engine, PROMPT[:20], params(n=6, max_tokens=40, **HOT))
    stop = free[2].text[10:12]
    stopped = run(engine, PROMPT[:20], params(n=6, max_tokens=40, stop=[stop], **HOT))
    assert {a.finish for a in stopped} >= {"stop"}
    for answer, whole in zip(stopped, free, strict=True):
        cut = whole.text.find(stop)
        assert answer.text == (whole.text if cut < 0 else whole.text[:cut])
        assert answer.finish == ("length" if cut < 0 else "stop")
    engine.audit()
    assert engine.stats()["live_blocks"] == 0
    engine.shutdown()


def test_cancel_ends_every_choice() -> None:
    engine = make_engine()
    channel = engine.open_channel()
    engine.inject_fault("hold", times=400, seconds=0.002)  # it is not over before it is cancelled
    request = engine.submit(PROMPT[:60], params(n=5, max_tokens=400, **HOT), channel)
    for _ in range(3):
        channel.wait(5000)
    engine.cancel(request)
    answers = gather(channel, {request: 5})[request]
    assert {a.finish for a in answers} == {"abort"}
    engine.audit()
    assert engine.stats()["live_blocks"] == 0
    engine.shutdown()


@pytest.mark.parametrize("kind", ["throw", "non_finite"])
def test_a_fault_ends_every_choice_with_its_cause(kind: str) -> None:
    engine = make_engine()
    channel = engine.open_channel()
    engine.inject_fault(kind, token=91, times=100)
    request = engine.submit([5, 6, 91], params(n=3, **HOT), channel)
    other = engine.submit([5, 6, 7], params(n=2, max_tokens=4, **HOT, bad_words=[[91]]), channel)
    got = gather(channel, {request: 3, other: 2})
    assert [a.finish for a in got[request]] == ["error"] * 3
    assert all(a.last.error is not None for a in got[request])
    assert [a.finish for a in got[other]] == ["length"] * 2
    engine.audit()
    engine.shutdown()


def test_a_group_alone_in_a_tiny_pool_is_cut_where_its_blocks_end() -> None:
    engine = make_engine(num_blocks=7)
    answers = run(engine, PROMPT[:20], params(n=3, max_tokens=400, **HOT))
    # One block of the prompt is shared; two for each: 32 positions from the sixteenth on.
    assert [len(a.tokens) for a in answers] == [28] * 3
    assert {a.finish for a in answers} == {"length"}
    engine.audit()
    engine.shutdown()


def test_prompt_logprobs_come_once() -> None:
    engine = make_engine()
    channel = engine.open_channel()
    request = engine.submit(PROMPT[:20], params(n=3, max_tokens=4, prompt_logprobs=0, **HOT), channel)
    scores, left = [], 3
    while left:
        channel.wait(1000)
        for delta in channel.drain():
            scores += [] if delta.prompt_logprobs is None else [delta.prompt_logprobs]
            left -= delta.finish is not None
    assert [len(s) for s in scores] == [20]
    assert request
    engine.shutdown()


def test_best_of_answers_with_the_likeliest_and_only_at_the_end() -> None:
    engine = make_engine()
    every = run(engine, PROMPT[:20], params(n=8, max_tokens=12, logprobs=0, **HOT))
    total = [sum(p[1] for p in a.logprobs) for a in every]
    order = sorted(range(8), key=lambda i: -total[i])
    best = run(engine, PROMPT[:20], params(n=3, best_of=8, max_tokens=12, **HOT))
    assert [a.tokens for a in best] == [every[i].tokens for i in order[:3]]
    assert [a.last.cumulative_logprob for a in best] == pytest.approx([total[i] for i in order[:3]])
    assert all(len(a.last.token_ids) == 12 for a in best)
    assert all(a.logprobs == [] for a in best)
    channel = engine.open_channel()
    engine.inject_fault("hold", seconds=0.02, times=10)
    request = engine.submit(PROMPT[:20], params(n=2, best_of=8, max_tokens=400, **HOT), channel)
    assert not channel.wait(150)
    engine.cancel(request)
    assert [a.finish for a in gather(channel, {request: 2})[request]] == ["abort"] * 2
    engine.audit()
    engine.shutdown()


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"n": 0}, "n"),
        ({"n": 17}, "n"),
        ({"n": 2**31 - 1}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 17}, "best_of"),
    ],
)
def test_more_sequences_than_run_at_once_are_refused(fields: dict[str, int], param: str) -> None:
    engine = make_engine(max_num_seqs=16)
    with pytest.raises(RefusedError, match=str(fields[param])) as refused:
        engine.submit([2], params(**fields), engine.open_channel())
    assert refused.value.param == param
    engine.shutdown()
