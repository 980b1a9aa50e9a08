"""Only the guilty request fails: faults provoked in the step of a busy engine."""

from __future__ import annotations

import time

import pytest
from conftest_runtime import collect, make_engine, params, tokens

from octavo import _engine
from octavo.errors import OctavoError

PROMPTS = [[2 + 7 * i + j for j in range(5)] for i in range(8)]
GUILTY = 3
MARK = 90  # a token that only the guilty prompt has


def answers(engine: _engine.Engine, *, mark: bool) -> dict[int, tuple[list[int], str | None]]:
    channel = engine.open_channel()
    prompts = [[*p, MARK] if mark and i == GUILTY else p for i, p in enumerate(PROMPTS)]
    engine.pause()  # so that all of them meet in one step
    ids = [engine.submit(p, params(max_tokens=12), channel) for p in prompts]
    engine.resume()
    out = collect(channel, ids)
    return {i: (tokens(out[rid]), out[rid][-1].finish) for i, rid in enumerate(ids)}


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
def test_a_step_that_throws_ends_only_the_request_that_makes_it_throw(kind: str) -> None:
    engine = make_engine()
    quiet = answers(engine, mark=False)
    engine.shutdown()
    engine = make_engine()
    engine.inject_fault(kind, token=MARK, times=1000)
    faulty = answers(engine, mark=True)
    engine.audit()
    assert engine.stats()["live_blocks"] == 0
    assert faulty.pop(GUILTY) == ([], "error")
    quiet.pop(GUILTY)
    assert faulty == quiet
    engine.shutdown()


# Around a step, not in it.
LOOP = {"idle", "inbox", "plan", "execute", "commit", "publish"}


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
def test_whatever_part_of_a_step_fails_only_the_request_ends_that_makes_it(kind: str) -> None:
    """Every phase that a step of this model went through."""
    engine = make_engine(trace=True, enable_prefix_caching=False)
    quiet = answers(engine, mark=False)
    quiet.pop(GUILTY)
    phases = {name for name, (count, _) in engine.take_trace().items() if count} - LOOP
    assert phases >= {"batch", "embed", "attention", "rope and KV write", "sample", "linear down_proj"}
    if kind == "out_of_memory":
        phases.discard("gather_rows")  # which the smaller steps do without that follow
    for phase in sorted(phases):
        engine.inject_fault(kind, token=MARK, times=1000, phase=phase)
        faulty = answers(engine, mark=True)
        assert faulty.pop(GUILTY) == ([], "error") and faulty == quiet, phase
        engine.inject_fault(kind, phase=phase, times=0)
        engine.audit()
    assert engine.stats()["live_blocks"] == 0
    engine.shutdown()


def test_a_phase_must_be_one_that_is_traced(engine: _engine.Engine) -> None:
    with pytest.raises(OctavoError, match="only to an engine that traces"):
        engine.inject_fault("throw", phase="attention")
    traced = make_engine(trace=True)
    with pytest.raises(OctavoError, match=r"phase must be one of .*attention.*; got 'lunch'"):
        traced.inject_fault("throw", phase="lunch")
    traced.shutdown()


def test_a_passing_fault_is_retried_and_nobody_notices() -> None:
    engine = make_engine()
    quiet = answers(engine, mark=False)
    engine.shutdown()
    engine = make_engine()
    engine.inject_fault("throw", times=1)
    assert answers(engine, mark=False) == quiet
    assert engine.stats()["failed_steps"] == 1
    engine.shutdown()


@pytest.mark.parametrize("token", [-1, MARK])
def test_memory_that_suffices_for_smaller_steps_fails_nobody(token: int) -> None:
    """With a token: one prompt alone is too large. Without: all of them together."""
    engine = make_engine()
    quiet = answers(engine, mark=True)
    engine.shutdown()
    engine = make_engine()
    engine.inject_fault("out_of_memory", token=token, times=1000, larger_than=2 if token == MARK else 16)
    assert answers(engine, mark=True) == quiet
    stats = engine.stats()
    assert stats["failed_steps"] == stats["shrunk_steps"] > 0
    limits = [d for d in engine.decisions() if d["kind"] == "limit"]
    assert (limits[0]["step_tokens"] > 0, limits[0]["chunk_tokens"] > 0) == (token < 0, token > 0)
    engine.audit()
    engine.shutdown()


def test_limits_of_short_memory_go_away(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    engine.inject_fault("out_of_memory", times=3, larger_than=1)
    rid = engine.submit(list(range(2, 80)), params(max_tokens=400), channel)
    assert len(tokens(collect(channel, [rid])[rid])) == 400
    limits = [d for d in engine.decisions() if d["kind"] == "limit"]
    assert limits and limits[-1]["step_tokens"] == limits[-1]["chunk_tokens"] == 0


def test_logits_that_are_not_finite_end_their_request_and_count() -> None:
    engine = make_engine()
    quiet = answers(engine, mark=False)
    engine.shutdown()
    engine = make_engine()
    engine.inject_fault("non_finite", token=MARK, times=1)
    faulty = answers(engine, mark=True)
    assert faulty.pop(GUILTY) == ([], "error")
    quiet.pop(GUILTY)
    assert faulty == quiet
    assert engine.stats()["non_finite_rows"] == 1
    engine.audit()
    engine.shutdown()


def test_the_error_carries_its_cause(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    engine.inject_fault("throw", times=1000)
    rid = engine.submit([4], params(), channel)
    code, _, message = collect(channel, [rid])[rid][-1].error
    assert code == "internal"
    assert "a fault was provoked" in message


def test_an_engine_thread_that_is_held_goes_on_afterwards(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    engine.inject_fault("hold", seconds=0.3)
    begin = time.monotonic()
    rid = engine.submit([4], params(), channel)
    assert len(tokens(collect(channel, [rid])[rid])) == 8
    assert time.monotonic() - begin >= 0.3
