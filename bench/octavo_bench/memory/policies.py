"""Who may enter the running set, and what of the cache is then in use: contiguous reservations and pages.

Every policy has the same slots (one slot holds the K and V of one token) and the same scheduler for its steps. With
contiguous ranges the scheduler is given a request once its range is reserved; pages are left to the scheduler.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields
from typing import Any

from octavo import _engine
from octavo_bench.memory.first_fit import FirstFit
from octavo_bench.memory.jobs import Job


@dataclass(frozen=True, slots=True)
class Limits:
    """What all policies share."""

    slots: int
    max_model_len: int
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 512

    @property
    def blocks(self) -> int:
        return self.slots // self.block_size


@dataclass(frozen=True, slots=True)
class Usage:
    """The slots of the cache at one moment, each counted once; the five add up to all of them."""

    tokens: int  # hold a token
    reserved: int  # kept for tokens that will come
    internal: int  # allocated and never filled
    external: int  # free, and of no use to the request that waits although it would fit in their sum
    free: int

    @property
    def allocated(self) -> int:
        return self.tokens + self.reserved + self.internal


USAGE_PARTS = tuple(f.name for f in fields(Usage))


class Policy(ABC):
    """One way to give memory to requests; used for one run."""

    name: str
    scheduler: _engine.Scheduler
    sharing = False  # whether prefixes are shared between requests

    @abstractmethod
    def admit(self, request: int, job: Job, active: int) -> bool:
        """Whether ``job`` goes to the scheduler now, with ``active`` requests there."""

    @abstractmethod
    def release(self, request: int) -> None:
        """The request has ended."""

    @abstractmethod
    def usage(self, snapshot: Mapping[str, Any], head: Job | None) -> Usage:
        """Of the cache as the scheduler's ``snapshot`` shows it, while ``head`` waits."""


class Contiguous(Policy):
    """Reserves one range of ``reserve(job)`` slots per request, first fit, in order of arrival."""

    def __init__(self, name: str, limits: Limits, reserve: Callable[[Job], int]) -> None:
        self.name = name
        self._limits = limits
        self._reserve = reserve
        self._memory = FirstFit(limits.slots)
        self._ranges: dict[int, tuple[int, int, int]] = {}  # request -> (start, reserved, final length)
        # The scheduler's own pages must never be what limits: a partly filled one per sequence comes on top.
        self.scheduler = _scheduler(limits, limits.blocks + limits.max_num_seqs, sharing=False, watermark=0.0)

    def admit(self, request: int, job: Job, active: int) -> bool:
        if active >= self._limits.max_num_seqs:
            return False
        length = self._reserve(job)
        start = self._memory.allocate(length)
        if start is None:
            return False
        self._ranges[request] = (start, length, job.length)
        return True

    def release(self, request: int) -> None:
        self._memory.release(self._ranges.pop(request)[0])

    def usage(self, snapshot: Mapping[str, Any], head: Job | None) -> Usage:
        tokens = snapshot["groups"][0]["live_tokens"]
        reserved = sum(length for _, length, _ in self._ranges.values())
        final = sum(length for _, _, length in self._ranges.values())
        free = self._memory.free
        fits_in_sum = head is not None and free >= self._reserve(head) > self._memory.largest_hole
        return Usage(
            tokens=tokens,
            reserved=final - tokens,
            internal=reserved - final,
            external=free if fits_in_sum else 0,
            free=0 if fits_in_sum else free,
        )


class Paged(Policy):
    """Octavo's own: blocks as they are needed, admission and preemption by the scheduler."""

    def __init__(self, name: str, limits: Limits, *, sharing: bool) -> None:
        self.name = name
        self.sharing = sharing
        self._limits = limits
        self.scheduler = _scheduler(limits, limits.blocks, sharing=sharing)

    def admit(self, request: int, job: Job, active: int) -> bool:
        return True

    def release(self, request: int) -> None:
        pass

    def usage(self, snapshot: Mapping[str, Any], head: Job | None) -> Usage:
        group = snapshot["groups"][0]
        allocated = group["live_blocks"] * self._limits.block_size
        tokens = group["live_tokens"]
        # A slot of the last block that will be filled is not told from one that will not: both are waste now.
        return Usage(tokens, 0, allocated - tokens, 0, self._limits.slots - allocated)


def _scheduler(limits: Limits, blocks: int, *, sharing: bool, watermark: float = 0.01) -> _engine.Scheduler:
    return _engine.Scheduler(
        groups=[(blocks, 0)],
        block_size=limits.block_size,
        max_tokens_per_step=limits.max_num_batched_tokens,
        max_seqs=limits.max_num_seqs,
        max_model_len=limits.max_model_len + 1,  # a sequence may end exactly at the window
        prefix_caching=sharing,
        watermark=watermark,
    )


def _power_of_two(n: int) -> int:
    return 1 << (n - 1).bit_length()


def all_policies(limits: Limits) -> Sequence[Policy]:
    """Fresh ones, the most wasteful first. The contiguous three are those of Orca in the PagedAttention paper."""

    def pow2(job: Job) -> int:
        return min(len(job.prompt) + _power_of_two(job.output), limits.max_model_len)

    return (
        Contiguous("contiguous max", limits, lambda job: limits.max_model_len),
        Contiguous("contiguous pow2", limits, pow2),
        Contiguous("contiguous oracle", limits, lambda job: job.length),
        Paged("paged", limits, sharing=False),
        Paged("paged, shared", limits, sharing=True),
    )
