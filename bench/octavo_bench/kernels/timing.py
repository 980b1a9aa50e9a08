"""Timing of one call."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Figure:
    """One kernel at one shape.

    Attributes:
        kernel: its name, with the weight or cache format.
        shape: the shape in words, for example ``3072x576 M=32``.
        rate: GFLOP/s (or GOP/s), or GB/s where reading is the limit.
        unit: of the rate.
        ceiling: the machine's limit in the same unit, measured in the same run.
        error: largest difference from the reference relative to the largest reference value.
    """

    kernel: str
    shape: str
    rate: float
    unit: str
    ceiling: float
    error: float

    @property
    def key(self) -> str:
        return f"{self.kernel} {self.shape} {self.unit}"

    @property
    def share(self) -> float:
        return self.rate / self.ceiling if self.ceiling else float("nan")


def best_seconds(calls: Sequence[Callable[[], object]], budget: float) -> float:
    """The quickest of many calls, made in turn (so that they may use different memory) for ``budget`` seconds."""
    for call in calls[:2]:
        call()
    best = float("inf")
    end = time.perf_counter() + budget
    while True:
        for call in calls:
            begin = time.perf_counter()
            call()
            best = min(best, time.perf_counter() - begin)
        if time.perf_counter() > end:
            return best
