"""The engine's life: submit, finish, cancel, pause, shut down, and the end of a process that forked."""

from __future__ import annotations

import os
import select
import subprocess
import sys
import threading
import time

import pytest
from conftest_runtime import VOCAB, collect, make_engine, params, tokens

from octavo import _engine
from octavo.errors import EngineDeadError, InvalidArgumentError, RefusedError


def test_a_request_streams_its_tokens_and_finishes(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    rid = engine.submit([5, 6, 7], params(stop_token_ids=[]), channel)
    deltas = collect(channel, [rid])[rid]
    assert len(tokens(deltas)) == 8
    assert deltas[-1].finish == "length"
    assert all(d.prompt_tokens == 3 and d.cached_tokens == 0 for d in deltas)
    first = deltas[0]
    assert (
        0 < first.arrival <= first.scheduled <= first.first_token <= deltas[-1].last_token <= time.monotonic()
    )
    assert "".join(d.text for d in deltas) == "".join(chr(32 + t) for t in tokens(deltas))


def test_the_eventfd_is_readable_exactly_while_deltas_wait(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    assert not channel.wait(0)
    rid = engine.submit([5], params(max_tokens=1), channel)
    assert select.select([channel.fd], [], [], 10)[0]
    assert [d.id for d in channel.drain()] == [rid]
    assert not channel.wait(0)


def test_cancel_ends_a_request_and_frees_its_blocks(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    engine.inject_fault("hold", times=400, seconds=0.002)  # it is not over before it is cancelled
    rid = engine.submit(list(range(2, 60)), params(max_tokens=400), channel)
    channel.wait(5000)
    engine.cancel(rid)
    deltas = collect(channel, [rid])[rid]
    assert deltas[-1].finish == "abort"
    engine.audit()
    assert engine.stats()["live_blocks"] == 0
    engine.cancel(rid)  # unknown by now: nothing happens
    engine.cancel(10**9)


def test_closing_a_channel_cancels_what_it_asked_for(engine: _engine.Engine) -> None:
    gone, stays = engine.open_channel(), engine.open_channel()
    for _ in range(4):
        engine.submit([3, 4], params(max_tokens=400), gone)
    kept = engine.submit([3, 4], params(max_tokens=20), stays)
    engine.close_channel(gone)
    assert len(tokens(collect(stays, [kept])[kept])) == 20
    engine.audit()
    assert engine.stats()["running"] == 0


def test_output_ends_with_the_window(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    prompt = [2 + i % 90 for i in range(500)]
    rid = engine.submit(prompt, params(max_tokens=1000), channel)
    deltas = collect(channel, [rid])[rid]
    assert len(tokens(deltas)) == 12
    assert deltas[-1].finish == "length"


def test_output_ends_with_the_pool_when_a_request_is_alone_in_it() -> None:
    engine = make_engine(num_blocks=4)
    channel = engine.open_channel()
    rid = engine.submit([3] * 40, params(max_tokens=400), channel)
    deltas = collect(channel, [rid])[rid]
    assert deltas[-1].finish == "length"
    assert 0 < len(tokens(deltas)) <= 64 - 40 + 1
    engine.audit()
    engine.shutdown()


@pytest.mark.parametrize(
    ("prompt", "fields", "param"),
    [
        ([], {}, "prompt"),
        ([VOCAB], {}, "prompt"),
        ([-1], {}, "prompt"),
        ([2] * 512, {}, "prompt"),
        ([2], {"max_tokens": 0}, "max_tokens"),
        ([2], {"temperature": float("nan")}, "temperature"),
        ([2], {"logit_bias": [(VOCAB, 1.0)]}, "logit_bias"),
        ([2], {"stop_token_ids": [-1]}, "stop_token_ids"),
    ],
)
def test_what_can_never_be_served_is_refused_at_once(
    engine: _engine.Engine, prompt: list[int], fields: dict[str, object], param: str
) -> None:
    with pytest.raises(RefusedError) as refused:
        engine.submit(prompt, params(**fields), engine.open_channel())
    assert refused.value.param == param
    channel = engine.open_channel()
    rid = engine.submit([5, 6], params(), channel)
    assert len(tokens(collect(channel, [rid])[rid])) == 8


def test_a_prompt_larger_than_the_pool_names_its_capacity() -> None:
    engine = make_engine(num_blocks=4)
    with pytest.raises(RefusedError, match="64"):
        engine.submit([2] * 65, params(), engine.open_channel())
    engine.shutdown()


def test_pause_stops_the_steps_and_resume_goes_on(engine: _engine.Engine) -> None:
    channel = engine.open_channel()
    engine.pause()
    assert engine.paused
    steps = engine.stats()["steps"]
    rid = engine.submit([5, 6, 7], params(), channel)
    assert not channel.wait(200)
    assert engine.stats()["steps"] == steps
    engine.resume()
    assert len(tokens(collect(channel, [rid])[rid])) == 8


def test_shutdown_aborts_what_is_under_way_and_ends_the_engine() -> None:
    engine = make_engine()
    channel = engine.open_channel()
    rid = engine.submit([5], params(max_tokens=500), channel)
    channel.wait(5000)
    engine.shutdown()
    assert collect(channel, [rid])[rid][-1].finish == "abort"
    with pytest.raises(EngineDeadError):
        engine.submit([5], params(), channel)
    engine.shutdown()  # twice is once


def test_an_engine_that_was_never_started_refuses_work() -> None:
    from conftest_runtime import tiny_config, tiny_weights

    engine = _engine.Engine(tiny_config(), tiny_weights(), num_blocks=4, threads=1)
    with pytest.raises(EngineDeadError):
        engine.submit([5], params(), engine.open_channel())
    engine.shutdown()


@pytest.mark.parametrize(
    ("option", "value"),
    [("block_size", 12), ("num_blocks", 0), ("max_model_len", 513), ("threads", -1), ("max_num_seqs", 0)],
)
def test_options_out_of_range_are_named(option: str, value: int) -> None:
    with pytest.raises(InvalidArgumentError, match=str(value)) as error:
        make_engine(**{option: value})
    assert error.value.param == option


def test_a_forked_child_may_not_use_the_engine(engine: _engine.Engine) -> None:
    pid = os.fork()
    if pid == 0:
        try:
            engine.stats()
            engine.cancel(1)
        except EngineDeadError as e:
            os._exit(0 if "fork" in str(e) else 2)
        os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 0


def test_many_threads_may_submit_and_cancel(engine: _engine.Engine) -> None:
    errors: list[BaseException] = []

    def client(seed: int) -> None:
        try:
            channel = engine.open_channel()
            for i in range(12):
                rid = engine.submit([2 + (seed * 7 + i) % 90, 3, 4], params(max_tokens=6), channel)
                if i % 3 == 0:
                    engine.cancel(rid)
                assert collect(channel, [rid])[rid][-1].finish in {"length", "abort"}
        except BaseException as e:
            errors.append(e)

    threads = [threading.Thread(target=client, args=(i,)) for i in range(6)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not errors
    engine.audit()
    assert engine.stats()["live_blocks"] == 0


BEYOND_MEMORY = """
import resource
from conftest_runtime import make_engine
from octavo.errors import OctavoError
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
try:
    make_engine(num_blocks=2**31 - 1)
except OctavoError as error:
    print(error.code)
"""


@pytest.mark.slow
@pytest.mark.unsanitized("the sanitizers reserve more address space than the limit")
def test_a_cache_beyond_the_memory_is_an_error() -> None:
    path = os.pathsep.join([os.path.dirname(__file__), *(p for p in sys.path if p)])
    child = subprocess.run(
        [sys.executable, "-c", BEYOND_MEMORY],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert child.stdout == "out_of_memory\n", child.stderr


def test_a_step_is_never_larger_than_all_windows() -> None:
    e = make_engine(max_num_batched_tokens=2**31 - 1, max_num_seqs=4, max_model_len=128)
    assert e.info()["max_num_batched_tokens"] == 4 * 128
    channel = e.open_channel()
    ids = [e.submit([5] * 100, params(), channel) for _ in range(6)]
    assert all(deltas[-1].finish for deltas in collect(channel, ids).values())
    e.shutdown()


def test_the_counters_are_not_behind_the_deltas(engine: _engine.Engine) -> None:
    """Who has read the end of a request does not find it running."""
    channel = engine.open_channel()
    for i in range(500):
        rid = engine.submit([5 + i % 80] * 3, params(max_tokens=1 + i % 2), channel)
        if i % 3 == 0:
            engine.cancel(rid)
        collect(channel, [rid])
        stats = engine.stats()
        assert (stats["running"], stats["waiting"], stats["live_blocks"]) == (0, 0, 0)
