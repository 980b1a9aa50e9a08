"""Runs a trace through the real scheduler under one memory policy, step by simulated step."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field

from octavo_bench.memory.cost import StepCost
from octavo_bench.memory.jobs import Job
from octavo_bench.memory.policies import USAGE_PARTS, Limits, Policy, Usage


@dataclass
class Run:
    """What one policy did with a trace.

    Attributes:
        usage: mean slots of each kind over the time in which requests waited (over the whole run where none did).
        live_length: mean positions of a running sequence over that time.
        sharing: positions that the sequences see per slot that holds one, over that time.
        sequences: mean number that ran, over that time.
        waited: share of the run's seconds in which requests waited.
        timeline: (seconds, sequences that run, slots that hold tokens) at every step.
    """

    policy: str
    slots: int
    usage: dict[str, float] = field(default_factory=dict)
    live_length: float = 0.0
    sharing: float = 0.0
    sequences: float = 0.0
    waited: float = 0.0
    peak: int = 0
    preemptions: int = 0
    steps: int = 0
    seconds: float = 0.0
    output_tokens: int = 0
    computed_tokens: int = 0
    requests: int = 0
    saturated_seconds: float = 0.0
    saturated_tokens: int = 0
    timeline: list[tuple[float, int, int]] = field(default_factory=list)

    @property
    def allocated(self) -> float:
        """Mean share of all slots that is allocated."""
        return sum(self.usage[k] for k in ("tokens", "reserved", "internal")) / self.slots

    @property
    def held(self) -> float:
        """Mean share of all slots that holds tokens: the figure of the PagedAttention paper."""
        return self.usage["tokens"] / self.slots

    @property
    def held_of_allocated(self) -> float:
        return self.held / self.allocated

    @property
    def throughput(self) -> float:
        """Output tokens per second while requests waited."""
        return self.saturated_tokens / self.saturated_seconds


class _Mean:
    """Time-weighted sums over the steps of one kind."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.output = 0
        self.usage = dict.fromkeys(USAGE_PARTS, 0.0)
        self.positions = 0.0
        self.sequences = 0.0

    def add(self, seconds: float, usage: Usage, positions: int, sequences: int, output: int) -> None:
        self.seconds += seconds
        self.output += output
        self.positions += positions * seconds
        self.sequences += sequences * seconds
        for part in USAGE_PARTS:
            self.usage[part] += getattr(usage, part) * seconds


def simulate(jobs: Sequence[Job], policy: Policy, limits: Limits, cost: StepCost) -> Run:
    """The whole trace until the last request has ended."""
    scheduler = policy.scheduler
    run = Run(policy.name, limits.slots, requests=len(jobs))
    due = deque(enumerate(jobs, 1))
    left = {i: job.output for i, job in due}  # also says which requests have not ended
    active: set[int] = set()
    saturated, whole = _Mean(), _Mean()
    now, token = 0.0, 0
    while due or active:
        while due and due[0][1].arrival <= now and policy.admit(*due[0], len(active)):
            request, job = due.popleft()
            scheduler.add(request, [request], job.prompt, max_new_tokens=job.output)
            active.add(request)
        plan = scheduler.plan()
        if plan is None:
            if not due:
                raise RuntimeError(f"{policy.name}: the scheduler stands still with {len(active)} requests")
            now = max(now, due[0][1].arrival)
            continue
        seconds = cost.seconds(plan)
        snapshot = scheduler.snapshot()
        waits = bool(snapshot["waiting"]) or bool(due and due[0][1].arrival <= now)
        usage = policy.usage(snapshot, due[0][1] if due else None)
        group = snapshot["groups"][0]
        sequences = sum(r["blocks"] > 0 for r in snapshot["running"])
        figures = (seconds, usage, group["table_tokens"], sequences, len(plan["samples"]))
        whole.add(*figures)
        if waits:
            saturated.add(*figures)
        run.timeline.append((now, sequences, usage.tokens))
        run.peak = max(run.peak, sequences)
        now += seconds

        outcomes = []
        for row, _, _, _ in plan["samples"]:
            request = plan["rows"][row]["seq"]
            left[request] -= 1
            token += 1
            ends = left[request] == 0
            outcomes.append((request, request, -token, ends))
            if ends:
                active.discard(request)
        scheduler.commit(plan["step"], outcomes)
        for request, _, _, ends in outcomes:
            if ends:
                policy.release(request)
        run.steps += 1
    run.waited = saturated.seconds / whole.seconds
    _finish(run, policy, saturated if saturated.seconds else whole, now, token)
    return run


def _finish(run: Run, policy: Policy, mean: _Mean, now: float, tokens: int) -> None:
    stats = policy.scheduler.stats()
    run.seconds = now
    run.output_tokens = tokens
    run.preemptions = stats["preemptions"]
    run.computed_tokens = stats["tokens_computed"]
    run.saturated_seconds = mean.seconds
    run.saturated_tokens = mean.output
    run.usage = {part: value / mean.seconds for part, value in mean.usage.items()}
    run.sequences = mean.sequences / mean.seconds
    run.live_length = mean.positions / mean.sequences
    run.sharing = mean.positions / mean.usage["tokens"]
