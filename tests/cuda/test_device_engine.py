"""Whole models on the emulated GPU: two steps under way, draws on the device, recorded graphs."""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest
from device_engine import BACKEND, answers, helpers, make_engine, requests, require_backend
from emulator_library import load

from octavo import _engine

pytestmark = pytest.mark.slow
REQUESTS = requests(12)


@pytest.fixture(scope="module")
def alone() -> list[Any]:
    """The answers to each request by itself, step by step as it comes."""
    engine = make_engine()
    told = answers(engine, REQUESTS, together=False)
    engine.shutdown()
    return told


@pytest.mark.parametrize(("kv_dtype", "length"), [("f16", 150), ("bf16", 20), ("int8", 20), ("fp8", 20)])
def test_logits_are_near_those_of_the_cpu(kv_dtype: str, length: int) -> None:
    require_backend()
    ids = np.random.default_rng(1).integers(0, 96, length).tolist()
    runners = [
        _engine.ModelRunner(helpers.tiny_config(), helpers.tiny_weights(), kv_dtype=kv_dtype, device=device)
        for device in ("cpu", BACKEND)
    ]
    cpu, gpu = (np.array(runner.logits(ids)) for runner in runners)
    assert np.abs(gpu - cpu).max() < 0.05 * np.abs(cpu).max()
    pieces = np.array(runners[1].logits(ids, chunk=length // 4))
    assert (pieces == gpu).all()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"graphs": False},
        {"max_num_batched_tokens": 8},
        {"num_blocks": 7},
        {"enable_prefix_caching": False},
    ],
    ids=["together", "without graphs", "small chunks", "preempted", "without a prefix cache"],
)
def test_an_answer_is_the_same_in_any_company(alone: list[Any], options: dict[str, Any]) -> None:
    engine = make_engine(**options)
    assert answers(engine, REQUESTS, together=True) == alone
    if "num_blocks" in options:
        assert engine.stats()["preemptions"] > 0
    engine.shutdown()


def test_the_host_learns_of_a_stop_too_late_and_nothing_is_told(alone: list[Any]) -> None:
    engine = make_engine()
    channel = engine.open_channel()
    prompt, fields = REQUESTS[0]
    tokens = alone[0][0][0]
    rid = engine.submit(
        prompt, helpers.params(**fields | {"stop_token_ids": [tokens[2]], "max_tokens": 6}), channel
    )
    deltas = helpers.collect(channel, [rid])[rid]
    assert helpers.tokens(deltas) == tokens[: tokens.index(tokens[2]) + 1]
    assert deltas[-1].finish == "stop"
    end = time.monotonic() + 20
    while engine.stats()["live_blocks"] > 0:  # the step that was under way behind it
        assert time.monotonic() < end
        time.sleep(0.01)
    engine.audit()
    engine.shutdown()


def test_a_passing_fault_changes_no_answer(alone: list[Any]) -> None:
    engine = make_engine()
    engine.inject_fault("throw", times=1, larger_than=4)
    assert answers(engine, REQUESTS, together=True) == alone
    assert engine.stats()["failed_steps"] == 1
    engine.shutdown()


def test_another_gpu_than_the_first_gives_the_same_answers(alone: list[Any]) -> None:
    emulator = load("octavo_cuda_emulated")
    emulator.octavo_emulator_set_devices(2)
    try:
        engine = make_engine(device=f"{BACKEND}:1")
        assert answers(engine, REQUESTS, together=True) == alone
        engine.shutdown()
    finally:
        assert emulator.trial_set_device(0) == 0
        emulator.octavo_emulator_reset()
