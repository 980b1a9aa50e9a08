"""Whether a series of samples grows: a line through them, with the confidence that its noise allows."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise

_Z95 = 1.96


@dataclass(frozen=True, slots=True)
class Trend:
    """
    Attributes:
        slope: units per second.
        error: half the width of its 95 % interval; samples that resemble their predecessor count for less.
        seconds: how long the series is.
    """

    slope: float
    error: float
    seconds: float

    @property
    def growth(self) -> float:
        """Units over the whole series."""
        return self.slope * self.seconds

    @property
    def least_growth(self) -> float:
        """What it grew by at least, with 95 % confidence; negative where it may not have grown."""
        return (self.slope - self.error) * self.seconds


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """Least squares. Neighbouring residuals are alike (a pool that fills, a burst), so the error is widened by their
    correlation: n samples say as much as n (1 - r) / (1 + r) independent ones.

    Raises:
        ValueError: fewer than eight samples.
    """
    n = len(times)
    if n < 8:
        raise ValueError(f"a trend needs eight samples, got {n}")
    mean_t, mean_v = sum(times) / n, sum(values) / n
    spread = sum((t - mean_t) ** 2 for t in times)
    slope = sum((t - mean_t) * (v - mean_v) for t, v in zip(times, values, strict=True)) / spread
    residuals = [v - mean_v - slope * (t - mean_t) for t, v in zip(times, values, strict=True)]
    square = sum(r * r for r in residuals)
    alike = sum(a * b for a, b in pairwise(residuals)) / square if square else 0.0
    alike = min(max(alike, 0.0), 0.99)
    widened = math.sqrt((1 + alike) / (1 - alike))
    error = _Z95 * widened * math.sqrt(square / (n - 2) / spread)
    return Trend(slope, error, times[-1] - times[0])
