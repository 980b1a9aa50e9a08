"""When each request is due: all of it decided before the first is sent."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from octavo_bench.client import Shot


@dataclass(frozen=True, slots=True)
class Traffic:
    """How requests arrive and how many may be under way.

    Attributes:
        rate: requests per second; infinite: all at once.
        burstiness: gamma shape of the gaps: 1 is a Poisson process, below 1 comes in bursts, above 1 is more even.
        ramp: ``linear`` or ``exponential`` change of the rate from ``ramp_start`` to ``ramp_end``.
        self_timed: take the times of the dataset, ``time_scale`` times as fast.
        concurrency: most requests under way at once.
        cancel_share, cancel_after: share of requests that hang up after so many chunks.
        slow_share, slow_rate: share of requests that read so many chunks per second at most.
    """

    rate: float = math.inf
    burstiness: float = 1.0
    ramp: str | None = None
    ramp_start: float = 0.0
    ramp_end: float = 0.0
    self_timed: bool = False
    time_scale: float = 1.0
    concurrency: int | None = None
    cancel_share: float = 0.0
    cancel_after: int = 8
    slow_share: float = 0.0
    slow_rate: float = 5.0

    @property
    def scheduled(self) -> bool:
        """Whether requests have times of their own, rather than going out as fast as they may."""
        return self.self_timed or self.ramp is not None or math.isfinite(self.rate)


def due_times(traffic: Traffic, count: int, rng: np.random.Generator) -> npt.NDArray[np.float64]:
    """Seconds at which ``count`` requests are due. Without a ramp the last is due at ``count / rate`` exactly."""
    if traffic.ramp is None and not math.isfinite(traffic.rate):
        return np.zeros(count)
    gaps = (
        rng.gamma(traffic.burstiness, 1 / traffic.burstiness, count)
        if math.isfinite(traffic.burstiness)
        else np.ones(count)
    )
    if traffic.ramp is None:
        times = np.cumsum(gaps)
        return np.asarray(times * (count / traffic.rate / times[-1]))
    progress = np.arange(count) / max(count - 1, 1)
    if traffic.ramp == "linear":
        rates = traffic.ramp_start + (traffic.ramp_end - traffic.ramp_start) * progress
    else:
        rates = traffic.ramp_start * (traffic.ramp_end / traffic.ramp_start) ** progress
    return np.asarray(np.cumsum(gaps / rates))


def schedule(shots: Sequence[Shot], traffic: Traffic, seed: int | Sequence[int]) -> list[Shot]:
    """The shots with their times, and with what the mix makes of some of them."""
    rng = np.random.default_rng([*(seed if isinstance(seed, Sequence) else [seed]), 2])
    firsts = [i for i, shot in enumerate(shots) if shot.previous is None]
    if traffic.self_timed:
        due = {i: shots[i].due / traffic.time_scale for i in firsts}
    else:
        due = dict(zip(firsts, due_times(traffic, len(firsts), rng).tolist(), strict=True))
    mood = rng.random(len(shots))
    for shot in shots:  # a turn that another follows is answered in full
        if shot.previous is not None:
            mood[shot.previous] = 1.0
    timed = []
    for i, shot in enumerate(shots):
        shot = replace(shot, due=due.get(i, 0.0))
        if mood[i] < traffic.cancel_share:
            shot = replace(shot, cancel_after=traffic.cancel_after)
        elif mood[i] < traffic.cancel_share + traffic.slow_share:
            shot = replace(shot, read_rate=traffic.slow_rate)
        timed.append(shot)
    return timed
