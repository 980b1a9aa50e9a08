"""Runs a load inside this process on an engine that traces its steps, and sums what each phase took."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from octavo import SamplingParams
from octavo.loading import LoadedModel
from octavo_bench.client import Load
from octavo_bench.workloads import Shape, batch, one_stream, prompts_alone

# Phases of the loop itself; "execute" holds all others, and between them what passes operations on and the tracing
# itself. Of those the executor's own are the host's too: on a GPU, to enqueue a step and to read its tokens.
LOOP = ("inbox", "plan", "commit", "publish")
EXECUTOR = ("batch", "launch", "draw", "read")
NOT_HOST = ("idle", "execute")
LOST = "between phases"


@dataclass(frozen=True, slots=True)
class Part:
    """One stretch of a workload.

    Attributes:
        name: the workload and the stretch, for example ``W2 decode``.
        steps: engine steps in it.
        seconds: their time, without waiting for requests.
        phases: nanoseconds and number of runs of each phase over all the steps.
    """

    name: str
    steps: int
    seconds: float
    phases: Mapping[str, tuple[int, int]]

    @property
    def host_us(self) -> float:
        """Time of a step outside kernels and sampling, in µs; the tracing itself is not counted."""
        host = sum(ns for name, (ns, _) in self.phases.items() if name in LOOP + EXECUTOR)
        return host / max(1, self.steps) / 1e3

    def per_step_us(self, phase: str) -> float:
        return self.phases[phase][0] / max(1, self.steps) / 1e3


def part_of(name: str, trace: Mapping[str, tuple[int, int]]) -> Part:
    """Of the trace of all its steps."""
    phases = {phase: (ns, count) for phase, (count, ns) in trace.items() if count}
    steps = phases.get("commit", (0, 0))[1]  # "execute" is noted when a step is given and when it is awaited
    execute = phases.get("execute", (0, 0))[0]
    inside = sum(ns for phase, (ns, _) in phases.items() if phase not in (*NOT_HOST, *LOOP))
    seen = {phase: value for phase, value in phases.items() if phase not in NOT_HOST}
    seen[LOST] = (max(0, execute - inside), steps)
    return Part(name, steps, sum(ns for ns, _ in seen.values()) / 1e9, seen)


def _stretches(model: LoadedModel, load: Load) -> tuple[Mapping[str, tuple[int, int]], ...]:
    """The traces until every request has its first token, and from there to the end."""
    engine = model.engine
    channel = engine.open_channel()
    engine.take_trace()
    waiting, running = set(), set()
    for shot in load.shots:
        params = SamplingParams(temperature=0.0, max_tokens=shot.max_tokens, ignore_eos=True)
        assert not isinstance(shot.prompt, str)
        waiting.add(model.submit(shot.prompt, params, channel))
    running |= waiting
    prefill: Mapping[str, tuple[int, int]] = {}
    while running:
        channel.wait(100)
        for delta in channel.drain():
            if delta.error is not None:
                raise RuntimeError(f"a request failed: {delta.error[2]}")
            waiting.discard(delta.id)
            if delta.finish is not None:
                running.discard(delta.id)
        if not waiting and not prefill:
            prefill = engine.take_trace()
    decode = engine.take_trace()
    engine.close_channel(channel)
    return prefill, decode


def measure(model: LoadedModel, shape: Shape, vocab: int) -> Iterator[Part]:
    """The parts of W1, W2 and W4, each workload run once before to warm up."""
    for name, make in (("W1", one_stream), ("W2", batch), ("W4", prompts_alone)):
        _stretches(model, make(shape, vocab, 1))
        prefill, decode = _stretches(model, make(shape, vocab, 2))
        yield part_of(f"{name} prefill", prefill)
        if decode.get("execute", (0, 0))[0]:
            yield part_of(f"{name} decode", decode)
