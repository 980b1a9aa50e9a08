"""Whether a series of samples grows: the slope of Theil and Sen over medians of blocks, with its confidence."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations, pairwise
from statistics import median

BLOCKS = 10
_Z95 = 1.96


@dataclass(frozen=True, slots=True)
class Trend:
    """
    Attributes:
        slope: units per second.
        low, high: its 95 % interval.
        seconds: how long the series is.
    """

    slope: float
    low: float
    high: float
    seconds: float

    @property
    def growth(self) -> float:
        """Units over the whole series."""
        return self.slope * self.seconds


def trend(times: Sequence[float], values: Sequence[float]) -> Trend:
    """The median slope of all pairs of blocks, and Sen's interval around it (JASA 63, 1968).

    Neighbouring samples are alike, so ``BLOCKS`` medians stand for them. The largest rise from one to the next is taken
    out: what happens once is no trend. Of steady growth that takes a part in ``BLOCKS - 1``.

    Args:
        times: seconds, ascending.
        values: as many.

    Raises:
        ValueError: fewer than two samples for each block.
    """
    if len(times) < 2 * BLOCKS:
        raise ValueError(f"a trend needs {2 * BLOCKS} samples, got {len(times)}")
    bounds = [len(times) * i // BLOCKS for i in range(BLOCKS + 1)]
    parts = [slice(a, b) for a, b in pairwise(bounds)]
    middles, levels = [median(times[part]) for part in parts], [median(values[part]) for part in parts]
    rise, at = max((b - a, i) for i, (a, b) in enumerate(pairwise(levels), 1))
    levels[at:] = [level - rise for level in levels[at:]]
    points = zip(middles, levels, strict=True)
    slopes = sorted((v - u) / (t - s) for (s, u), (t, v) in combinations(points, 2))
    # Kendall: how far the count of rising pairs strays where there is no trend.
    spread = _Z95 * math.sqrt(BLOCKS * (BLOCKS - 1) * (2 * BLOCKS + 5) / 18)
    outside = int((len(slopes) - spread) / 2)
    return Trend(median(slopes), slopes[outside - 1], slopes[-outside], times[-1] - times[0])
