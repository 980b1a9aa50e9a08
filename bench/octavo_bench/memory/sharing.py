"""What sharing saves: one prompt under many conversations, several answers to one prompt, beams."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from octavo import _engine
from octavo_bench.memory.jobs import Job

_PUBLISHED_N, _PUBLISHED_BEAMS = "16.2-30.5 %", "44.3-66.3 %"
# (parent, child, token, ended), as _engine.Scheduler.commit takes them.
_Outcome = tuple[int, int, int, bool]


@dataclass(frozen=True, slots=True)
class Shared:
    """One scenario.

    Attributes:
        sequences: the most that ran at once.
        blocks: mean number of live blocks.
        unshared: what their block tables would take if nobody shared.
        ideal: the least blocks in which these tokens can lie, for the scenario that has such a bound.
        worst: the largest ratio of live blocks to the least there was.
        published: what the PagedAttention paper (SOSP '23, figure 15) found saved for ShareGPT.
    """

    name: str
    sequences: int
    blocks: float
    unshared: float
    ideal: float | None = None
    worst: float | None = None
    published: str = ""

    @property
    def saved(self) -> float:
        """Share of the blocks that sharing saves."""
        return 1 - self.blocks / self.unshared


@dataclass
class _Group:
    """A request with several branches, as the caller of the scheduler keeps it."""

    job: Job
    width: int
    beam: bool
    branches: dict[int, float]  # sequence -> score
    new: int = 0


class _World:
    """Groups of sequences over one scheduler; steps until all have ended."""

    def __init__(self, blocks: int, block_size: int, max_seqs: int) -> None:
        self.block_size = block_size
        self.scheduler = _engine.Scheduler(
            groups=[(blocks, 0)],
            block_size=block_size,
            max_tokens_per_step=max(512, max_seqs),
            max_seqs=max_seqs,
            max_model_len=1 << 20,
        )
        self._groups: dict[int, _Group] = {}  # by request
        self._owner: dict[int, int] = {}  # sequence -> request
        self._next = 1
        self._random = random.Random(0)

    def add(self, job: Job, width: int, *, beam: bool = False) -> None:
        request = self._next
        seqs = [self._new_sequence(request) for _ in range(width)]
        self._groups[request] = _Group(job, width, beam, {seqs[0]: 0.0})
        self.scheduler.add(request, seqs, job.prompt, max_new_tokens=job.output)

    def lengths(self) -> list[int]:
        """Of all branches, the token that is drawn last not counted: it is not in the cache yet."""
        return [
            len(g.job.prompt) + max(0, g.new - 1)
            for g in self._groups.values()
            for _ in range(len(g.branches))
        ]

    def run(self, look: Callable[[Mapping[str, Any]], None]) -> None:
        """Calls ``look`` with a snapshot after each commit."""
        while (plan := self.scheduler.plan()) is not None:
            sampled: dict[int, list[tuple[int, int]]] = {}
            for row, _, state, _ in plan["samples"]:
                parent = plan["rows"][row]["seq"]
                sampled.setdefault(self._owner[parent], []).append((parent, state))
            outcomes = [o for request, rows in sampled.items() for o in self._advance(request, rows)]
            self.scheduler.commit(plan["step"], outcomes)
            look(self.scheduler.snapshot())

    def _new_sequence(self, request: int) -> int:
        seq, self._next = self._next, self._next + 1
        self._owner[seq] = request
        return seq

    def _advance(self, request: int, rows: Sequence[tuple[int, int]]) -> list[_Outcome]:
        group = self._groups[request]
        group.new += 1
        ends = group.new == group.job.output
        if group.beam and group.new > 1:
            outcomes = self._beams(request, group, ends)
        else:
            outcomes = [(parent, state, self._random.getrandbits(30), ends) for parent, state in rows]
            group.branches = {state: 0.0 for _, state in rows}
        if ends:
            del self._groups[request]
        return outcomes

    def _beams(self, request: int, group: _Group, ends: bool) -> list[_Outcome]:
        """The best ``width`` of all continuations, with log-probabilities drawn at random."""
        candidates = []
        for seq, score in group.branches.items():
            at = score
            for _ in range(group.width):
                at -= self._random.expovariate(1.0)
                candidates.append((at, seq))
        outcomes, branches = [], {}
        for score, parent in heapq.nlargest(group.width, candidates):
            child = self._new_sequence(request) if parent in branches else parent
            branches[child] = score
            outcomes.append((parent, child, self._random.getrandbits(30), ends))
        group.branches = branches
        return outcomes


def _run(name: str, world: _World, least: int, ideal: Callable[[list[int]], int] | None) -> Shared:
    """Means over the steps in which at least ``least`` sequences run whose prompt is computed."""
    most, steps, live, unshared, bounds, worst = 0, 0, 0.0, 0.0, 0.0, 0.0

    def look(snapshot: Mapping[str, Any]) -> None:
        nonlocal most, steps, live, unshared, bounds, worst
        ready = [r for r in snapshot["running"] if r["computed"] >= r["prompt_tokens"]]
        sequences = sum(r["sequences"] for r in ready)
        if sequences < least:
            return
        group = snapshot["groups"][0]
        most = max(most, sequences)
        steps += 1
        live += group["live_blocks"]
        unshared += group["table_entries"]
        if ideal is not None:
            bound = ideal(world.lengths())
            bounds += bound
            worst = max(worst, group["live_blocks"] / bound)

    world.run(look)
    bounded = ideal is not None
    return Shared(
        name,
        most,
        live / steps,
        unshared / steps,
        bounds / steps if bounded else None,
        worst if bounded else None,
    )


def one_prompt(
    block_size: int, conversations: int = 100, prompt: int = 1000, question: int = 32, answer: int = 64
) -> Shared:
    """``conversations`` that arrive together, each with a question of its own behind one common prompt."""
    rng = random.Random(1)
    system = [rng.getrandbits(30) for _ in range(prompt)]
    shared = prompt // block_size

    def ideal(lengths: list[int]) -> int:
        return shared + sum(-(-length // block_size) - shared for length in lengths)

    per_conversation = -(-(prompt + question + answer) // block_size) - shared
    world = _World(shared + conversations * (per_conversation + 1), block_size, conversations)
    for _ in range(conversations):
        world.add(Job(0.0, system + [rng.getrandbits(30) for _ in range(question)], answer), 1)
    return _run(f"{conversations} conversations, one {prompt:,}-token prompt", world, conversations, ideal)


def several_answers(jobs: Sequence[Job], width: int, block_size: int, *, beam: bool) -> Shared:
    """Each of ``jobs`` with ``width`` answers (or beams), all at once, in a cache that is large enough."""
    blocks = sum(width * (-(-job.length // block_size) + 1) for job in jobs)
    world = _World(blocks, block_size, width * len(jobs))
    for job in jobs:
        world.add(job, width, beam=beam)
    name = f"{width} beams" if beam else f"n = {width}"
    measured = _run(f"{name}, {len(jobs)} requests", world, 1, None)
    return replace(measured, published=_PUBLISHED_BEAMS if beam else _PUBLISHED_N)
