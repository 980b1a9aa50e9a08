"""Two steps under way say what one at a time says: the same tokens, text, scores and ends."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from conftest_runtime import params, tiny_table

from octavo import _engine

VOCAB = 96
EOS = 1
POISON = 95


class Matcher:
    """A grammar as Python sees it: the n-th token's residue modulo 5 lies in the n-th set; a set of one forces."""

    def __init__(self, sets: list[list[int]], at: int = 0) -> None:
        self.sets, self.at = sets, at

    def deep_copy(self) -> Matcher:
        return Matcher(self.sets, self.at)

    def _allowed(self) -> list[int]:
        return self.sets[self.at] if self.at < len(self.sets) else [EOS]

    def unsafe_compute_mask_ptr(self, pointer: int, size: int) -> None:
        import ctypes

        words = np.zeros(size // 4, np.uint32)
        for token in self._allowed():
            words[token // 32] |= np.uint32(1 << (token % 32))
        ctypes.memmove(pointer, words.ctypes.data, size)

    def consume_token(self, token: int) -> bool:
        allowed = token in self._allowed()
        self.at += 1
        return allowed

    def get_error(self) -> str:
        return "not in the set"

    def is_stopped(self) -> bool:
        return self.at >= len(self.sets)

    def compute_ff_tokens(self) -> list[int]:
        forced = []
        for allowed in self.sets[self.at :]:
            if len(allowed) > 1:
                break
            forced += allowed
        return forced


@dataclass
class Job:
    """A request and what happens to it."""

    prompt: list[int]
    fields: dict[str, Any]
    at: int  # the step before which it comes
    place: dict[str, int]
    sets: list[list[int]] | None = None
    cancel_at: int | None = None  # after so many tokens
    fork_at: int | None = None


@dataclass
class Workload:
    options: dict[str, Any]
    jobs: list[Job]
    failing: list[tuple[str, int]]


@dataclass
class Told:
    """What one choice of a request was told."""

    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[Any] = field(default_factory=list)
    prompt_logprobs: Any = None
    end: tuple[Any, ...] | None = None


def random_job(draw: random.Random, heads: list[list[int]], capacity: int) -> Job:
    head = draw.choice(heads)
    prompt = head[: draw.randint(0, len(head))] + [
        draw.randrange(2, POISON) for _ in range(draw.randint(1, 6))
    ]
    if draw.random() < 0.04:
        prompt[draw.randrange(len(prompt))] = POISON
    fields: dict[str, Any] = {
        "max_tokens": draw.randint(1, 24),
        "temperature": 1.0,
        "seed": draw.randrange(2**40),
    }
    job = Job(prompt[: capacity // 3], fields, draw.randint(0, 30), {})
    kind = draw.choice(["plain"] * 6 + ["n", "best", "beam", "grammar", "penalty", "scored"])
    if kind == "n":
        fields["n"] = draw.randint(2, 3)
    elif kind == "best":
        fields |= {"n": 1, "best_of": 2}
    elif kind == "beam":
        fields |= {"beam_width": 2, "n": 1}
    elif kind == "grammar":
        job.sets = [
            draw.sample(range(2, POISON), draw.choice([1, 1, 2, 5])) for _ in range(draw.randint(1, 12))
        ]
    elif kind == "penalty":
        fields["frequency_penalty"] = 0.5
    elif kind == "scored":
        fields |= {"logprobs": draw.randint(0, 2), "prompt_logprobs": draw.choice([-1, 0, 1])}
    # Alone, it fits: how long it would get otherwise depends on its company.
    width = max(fields.get("n", 1), fields.get("best_of", 1), fields.get("beam_width", 1))
    if width > 1:
        job.prompt = job.prompt[: capacity // 6]
        fields["max_tokens"] = min(fields["max_tokens"], capacity // (2 * width))
    if draw.random() < 0.4:
        fields["stop_token_ids"] = [EOS, *draw.sample(range(2, POISON), draw.randint(0, 9))]
    if draw.random() < 0.2 and kind != "beam":
        fields["stop"] = [chr(draw.randrange(33, 126)) for _ in range(3)] + ["ab"]
    job.place = {
        "namespace": draw.choice([0, 0, 7]), "priority": draw.choice([0, 0, 1]), "tenant": draw.choice([0, 0, 3]),
    }  # fmt: skip
    if draw.random() < 0.15:
        job.cancel_at = draw.randint(0, 12)
    if draw.random() < 0.15 and kind == "plain":
        job.fork_at = draw.randint(1, 8)
    return job


def random_workload(seed: int) -> Workload:
    draw = random.Random(seed)
    size = draw.choice([2, 4, 8])
    blocks = draw.choice([12, 20, 60])
    groups = [(blocks, 0)]
    if draw.random() < 0.25:
        groups.append((blocks, draw.choice([5, 9, 16])))
    options = {
        "groups": groups, "block_size": size, "max_tokens_per_step": draw.choice([6, 16, 64]),
        "max_seqs": draw.choice([4, 6]), "max_model_len": draw.choice([40, 100]),
        "prefix_caching": draw.random() < 0.85, "poison": POISON,
        "non_finite_in": draw.choice([0, 0, 0, 60]),
    }  # fmt: skip
    heads = [[draw.randrange(2, POISON) for _ in range(24)] for _ in range(2)]
    capacity = min(blocks * size, options["max_model_len"])
    jobs = [random_job(draw, heads, capacity) for _ in range(draw.randint(1, 10))]
    failing = []
    if draw.random() < 0.3:
        options["poison"] = -1  # a passing fault in the search for the guilty would strike an innocent
        failing = [(draw.choice(["submit", "wait"]), n) for n in draw.sample(range(0, 200, 12), 3)]
    return Workload(options, jobs, failing)


class Run:
    """A workload carried out with so many steps under way."""

    def __init__(self, workload: Workload, slots: int) -> None:
        self.engine = _engine.HashEngine(table=tiny_table(), eos=[EOS], slots=slots, **workload.options)
        self.told: dict[tuple[str, int], Told] = {}
        self.names: dict[int, str] = {}
        self.jobs: dict[int, Job] = {}
        for kind, n in workload.failing:
            (self.engine.fail_submit if kind == "submit" else self.engine.fail_wait)(n)
        waiting = [(job.at, i, job) for i, job in enumerate(workload.jobs)]
        steps = 0
        while waiting or self.engine.has_work():
            for entry in [w for w in waiting if w[0] <= steps]:
                waiting.remove(entry)
                self.submit(f"r{entry[1]}", entry[2])
            self.listen(self.engine.step())
            self.engine.audit()
            steps += 1
            assert steps < 5000, "the workload does not end"
        self.listen(self.engine.drain())
        assert self.engine.live_blocks() == 0

    def submit(self, name: str, job: Job) -> None:
        made = params(**job.fields)
        if job.sets is not None:
            made.grammar = _engine.python_grammar(Matcher(job.sets), VOCAB)
        request = self.engine.submit(job.prompt, made, **job.place)
        self.names[request], self.jobs[request] = name, job
        if job.cancel_at == 0:
            self.engine.cancel(request)

    def listen(self, deltas: list[Any]) -> None:
        for delta in deltas:
            told = self.told.setdefault((self.names[delta.id], delta.choice), Told())
            assert told.end is None, "something was told after the end"
            told.tokens += delta.token_ids
            told.text += delta.text
            told.logprobs += delta.logprobs or []
            told.prompt_logprobs = told.prompt_logprobs or delta.prompt_logprobs
            if delta.finish is not None:
                told.end = (
                    delta.finish,
                    delta.stop_reason,
                    delta.error,
                    delta.cumulative_logprob,
                    delta.score,
                )
            self.react(delta, told)

    def react(self, delta: Any, told: Told) -> None:
        job = self.jobs.get(delta.id)
        if job is None or delta.choice != 0 or delta.finish is not None:
            return
        if job.fork_at is not None and len(told.tokens) >= job.fork_at:
            child = params(max_tokens=6, temperature=1.0, seed=5)
            position = len(job.prompt) + job.fork_at
            self.names[self.engine.fork(delta.id, child, position=position)] = self.names[delta.id] + "f"
            job = Job(job.prompt, job.fields, 0, {}, cancel_at=job.cancel_at)
            self.jobs[delta.id] = job
        if job.cancel_at is not None and len(told.tokens) >= job.cancel_at:
            self.engine.cancel(delta.id)
            self.jobs[delta.id] = Job([], {}, 0, {})


def differences(seed: int) -> tuple[int, int, int, int]:
    workload = random_workload(seed)
    one, two = Run(workload, 1), Run(workload, 2)
    assert one.told == two.told, f"workload {seed}"
    return two.engine.counts()


def test_two_steps_under_way_say_what_one_says() -> None:
    counts = np.sum([differences(seed) for seed in range(150)], axis=0)
    _, failed, preempted, hits = counts
    assert failed > 10 and preempted > 10 and hits > 100, "the workloads exercise too little"


@pytest.mark.slow
def test_two_steps_under_way_say_what_one_says_at_length() -> None:
    for seed in range(1000, 4000):
        differences(seed)
