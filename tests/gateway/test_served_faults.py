"""Faults in every phase of a step of a real server: who fails, who does not, what /ready says, how soon it recovers."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]

HERE = Path(__file__).parent
MARK = 8191  # a token that only the guilty prompt has
LAST = 8190  # its last one
STALL = 1.0
PREFIX = [1000 + i for i in range(24)]  # a block and a half: who shares it copies half a block
# Phases as the engine's trace names them, in the order of a step.
STEP = ("copy_blocks", "batch")
FORWARD = (
    "embed", "linear q_proj+k_proj+v_proj", "rope and KV write", "attention", "linear o_proj",
    "linear gate_proj+up_proj", "linear down_proj", "linear embed_tokens",
)  # fmt: skip
AFTER = ("sample", "score prompts")
AROUND = ("plan", "commit", "publish")  # of the engine's loop, outside the executor


class Faulty:
    def __init__(self, process: subprocess.Popen[str], port: int) -> None:
        self.process, self.port = process, port

    def arm(self, **fault: Any) -> None:
        assert self.process.stdin and self.process.stdout
        self.process.stdin.write(json.dumps(fault) + "\n")
        self.process.stdin.flush()
        assert self.process.stdout.readline() == "ok\n"

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=120)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        return response.status, json.loads(raw) if raw[:1] == b"{" else raw.decode()

    def ask(self, prompt: list[int], **fields: Any) -> tuple[int, Any]:
        """The status and the bits of an answer, or its error."""
        body = {"prompt": prompt, "max_tokens": 10, "ignore_eos": True, "logprobs": 2, "seed": 9, **fields}
        status, answer = self.request("POST", "/v1/completions", {**body, "return_token_ids": True})
        return status, answer["choices"] if status == 200 else answer["error"]

    def together(self, guilty: dict[str, Any]) -> list[tuple[int, Any]]:
        """The guilty request and four others at once; the answer of the first comes first."""
        asked = [({"prompt": [*PREFIX, MARK, LAST]}, guilty)]
        asked += [
            ({"prompt": [*PREFIX, 500 + i, 600 + i]}, {"seed": i, "temperature": 1.0}) for i in range(4)
        ]
        with ThreadPoolExecutor(len(asked)) as pool:
            answers = [pool.submit(self.ask, **prompt, **fields) for prompt, fields in asked]
            return [answer.result() for answer in answers]

    def ready(self) -> int:
        return self.request("GET", "/ready")[0]

    def gauge(self, name: str) -> float:
        _, text = self.request("GET", "/metrics")
        return sum(float(v) for v in re.findall(rf"^{name}(?:{{[^}}]*}})? (\S+)$", text, re.MULTILINE))

    def recovers(self) -> float:
        """Seconds until a small request is answered as ever and nothing holds a block."""
        begin = time.monotonic()
        assert self.ask([5, 6, 7], max_tokens=1)[0] == 200
        seconds = time.monotonic() - begin
        while self.gauge("octavo:kv_blocks_live") or self.gauge("vllm:num_requests_running"):
            assert time.monotonic() - begin < 30
            time.sleep(0.02)
        assert self.request("GET", "/debug/audit")[0] == 200
        return seconds


@pytest.fixture(scope="module")
def faulty() -> Iterator[Faulty]:
    settings = {"stall_seconds": STALL, "debug_cache": True, "log_requests": False}
    process = subprocess.Popen(
        [sys.executable, str(HERE / "faulty_server.py"), json.dumps(settings)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", process.stdout.readline())
        assert found, "the server did not start"
        yield Faulty(process, int(found[1]))
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0
    finally:
        process.kill()
        process.communicate()


@pytest.fixture(scope="module")
def quiet(faulty: Faulty) -> list[tuple[int, Any]]:
    answers = faulty.together({"echo": True})
    assert [status for status, _ in answers] == [200] * 5
    return answers


@pytest.fixture(scope="module")
def table() -> Iterator[list[tuple[str, ...]]]:
    """What happened, printed in the end (pytest -s)."""
    rows: list[tuple[str, ...]] = []
    yield rows
    for row in rows:
        print("| " + " | ".join(row) + " |")


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
@pytest.mark.parametrize("phase", [*STEP[1:], *FORWARD, *AFTER])
def test_who_makes_a_phase_fail_ends_alone(
    faulty: Faulty, quiet: list[Any], table: list[Any], phase: str, kind: str
) -> None:
    faulty.arm(kind=kind, phase=phase, token=MARK, times=1000)
    guilty, *others = faulty.together({"echo": True})
    assert others == quiet[1:]
    status, error = guilty
    assert status == 500 and caused(error, kind)
    assert faulty.ready() == 200
    faulty.arm(kind=kind, phase=phase, times=0)
    seconds = faulty.recovers()
    table.append((phase, kind, "only the guilty request", "200", f"{seconds:.2f} s"))


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
@pytest.mark.parametrize("phase", [*STEP, *FORWARD, *AFTER])
def test_a_fault_that_passes_is_noticed_by_nobody(
    faulty: Faulty, quiet: list[Any], table: list[Any], phase: str, kind: str
) -> None:
    failed = faulty.gauge("octavo:failed_steps_total")
    faulty.arm(kind=kind, phase=phase, after=3 if phase in FORWARD else 0, times=1)
    assert faulty.together({"echo": True}) == quiet
    assert faulty.gauge("octavo:failed_steps_total") == failed + 1
    table.append((phase, f"{kind}, once", "nobody", str(faulty.ready()), f"{faulty.recovers():.2f} s"))


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
@pytest.mark.parametrize("phase", AROUND)
def test_a_fault_around_a_step_that_passes_is_noticed_by_nobody(
    faulty: Faulty, quiet: list[Any], table: list[Any], phase: str, kind: str
) -> None:
    """Twice in a row: the plan, the commit or the publishing is done again, the step is not."""
    failed = faulty.gauge("octavo:failed_steps_total")
    faulty.arm(kind=kind, phase=phase, times=2)
    assert faulty.together({"echo": True}) == quiet
    assert faulty.gauge("octavo:failed_steps_total") == failed
    table.append((phase, f"{kind}, twice", "nobody", str(faulty.ready()), f"{faulty.recovers():.2f} s"))


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
def test_a_plan_that_keeps_failing_ends_everybody(
    faulty: Faulty, quiet: list[Any], table: list[Any], kind: str
) -> None:
    """Nobody is told apart in a plan: after a second all requests end with the cause, and the server goes on."""
    faulty.arm(kind=kind, phase="plan", times=10**6)
    said, thread = watched(faulty, 2.5)
    begin = time.monotonic()
    answers = faulty.together({"echo": True})
    took = time.monotonic() - begin
    faulty.arm(kind=kind, phase="plan", times=0)
    thread.join()
    assert all(status == 500 and caused(error, kind) for status, error in answers)
    assert 0.5 < took < 15.0
    assert said[-1] == 200
    seconds = faulty.recovers()
    assert faulty.together({"echo": True}) == quiet
    row = ("plan", f"{kind}, stays", f"everybody, after {took:.1f} s", said_by_ready(said))
    table.append((*row, f"{seconds:.2f} s"))


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
def test_a_commit_that_keeps_failing_ends_the_requests_of_its_step(
    faulty: Faulty, quiet: list[Any], table: list[Any], kind: str
) -> None:
    faulty.arm(kind=kind, phase="commit", token=MARK, times=10**6)
    guilty, *others = faulty.together({"echo": True})
    assert guilty[0] == 500 and caused(guilty[1], kind)
    beside = 0
    for answer, undisturbed in zip(others, quiet[1:], strict=True):
        if answer[0] == 500:
            assert caused(answer[1], kind)
            beside += 1
        else:
            assert answer == undisturbed
    assert faulty.ready() == 200
    faulty.arm(kind=kind, phase="commit", times=0)
    seconds = faulty.recovers()
    assert faulty.together({"echo": True}) == quiet
    table.append(
        ("commit", f"{kind}, stays", f"its step's requests ({1 + beside} of 5)", "200", f"{seconds:.2f} s")
    )


@pytest.mark.parametrize("kind", ["throw", "out_of_memory"])
def test_what_cannot_be_published_is_told_later(
    faulty: Faulty, quiet: list[Any], table: list[Any], kind: str
) -> None:
    faulty.arm(kind=kind, phase="publish", times=100)
    begin = time.monotonic()
    assert faulty.together({"echo": True}) == quiet
    took = time.monotonic() - begin
    row = ("publish", f"{kind}, 100 times", f"nobody; answered after {took:.1f} s", str(faulty.ready()))
    table.append((*row, f"{faulty.recovers():.2f} s"))


def test_logits_that_are_not_finite(faulty: Faulty, quiet: list[Any], table: list[Any]) -> None:
    # After failed allocations prompts are cut into smaller steps for a while: only the last one has logits.
    faulty.arm(kind="non_finite", token=LAST, times=1)
    (status, error), *others = faulty.together({})
    assert status == 500 and "are not finite" in error["message"]
    assert others == quiet[1:]
    row = ("logits", "non-finite", "only the guilty request", str(faulty.ready()))
    table.append((*row, f"{faulty.recovers():.2f} s"))


def caused(error: dict[str, Any], kind: str) -> bool:
    return (
        error["code"] == "internal_error"
        and ("a fault was provoked" if kind == "throw" else "memory") in error["message"]
    )


def said_by_ready(said: list[int]) -> str:
    return "200" if set(said) == {200} else "503 for a while, then 200"


def watched(faulty: Faulty, seconds: float) -> tuple[list[int], threading.Thread]:
    """What /ready says from now on, every 50 ms."""
    said: list[int] = []
    end = time.monotonic() + seconds

    def watch() -> None:
        while time.monotonic() < end:
            said.append(faulty.ready())
            time.sleep(0.05)

    thread = threading.Thread(target=watch)
    thread.start()
    return said, thread


def test_an_engine_thread_that_is_held(faulty: Faulty, quiet: list[Any], table: list[Any]) -> None:
    """/ready fails after the stall limit and is back with the next step; every answer is as ever."""
    faulty.arm(kind="hold", phase="attention", seconds=STALL + 2.0, times=1)
    said, thread = watched(faulty, STALL + 4.0)
    begin = time.monotonic()
    assert faulty.together({"echo": True}) == quiet
    took = time.monotonic() - begin
    thread.join()
    first, last = said.index(503), len(said) - said[::-1].index(503)
    assert set(said[:first]) == {200} and set(said[last:]) == {200}
    row = ("attention", f"held for {STALL + 2:.0f} s", "nobody", f"503 after {STALL:.0f} s, then 200")
    table.append((*row, f"{took - STALL - 2:.2f} s"))
    faulty.recovers()


def test_a_whole_process_that_is_stopped(faulty: Faulty, quiet: list[Any], table: list[Any]) -> None:
    with ThreadPoolExecutor(1) as pool:
        answers = pool.submit(faulty.together, {"echo": True})
        time.sleep(0.1)
        os.kill(faulty.process.pid, signal.SIGSTOP)
        time.sleep(STALL + 1.0)
        os.kill(faulty.process.pid, signal.SIGCONT)
        begin = time.monotonic()
        while faulty.ready() != 200:
            assert time.monotonic() - begin < 30
        back = time.monotonic() - begin
        assert answers.result() == quiet
    table.append(("any", "SIGSTOP, SIGCONT", "nobody", "no answer, then 200", f"{back:.2f} s"))
    faulty.recovers()
