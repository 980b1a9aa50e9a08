"""Figures of a run. Failures are counted by kind and never enter an average."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from octavo_bench.client.records import Record


def percentile(values: Sequence[float], q: float) -> float:
    """The q-th percentile (0 to 100) with linear interpolation; NaN for no values."""
    if not values:
        return math.nan
    ordered = sorted(values)
    place = (len(ordered) - 1) * q / 100
    low = math.floor(place)
    high = min(low + 1, len(ordered) - 1)
    return ordered[low] + (ordered[high] - ordered[low]) * (place - low)


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals and medians of one run; times in seconds, rates per second."""

    requests: int
    failures: dict[str, int]
    duration: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    output_rate: float
    prompt_rate: float
    ttft_p50: float
    ttft_p99: float
    tpot_p50: float
    tpot_p99: float
    latency_p50: float
    scheduled_latency_p50: float
    dispatch_delay_p99: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def _known(values: Iterable[float | None]) -> list[float]:
    return [v for v in values if v is not None]


def summarize(records: Sequence[Record]) -> Summary:
    """Figures over the whole run: rates count from the first dispatch to the last answer."""
    good = [r for r in records if r.ok]
    failures = Counter((r.error or "unfinished").split(":")[0] for r in records if not r.ok)
    starts = _known(r.dispatched for r in good)
    ends = _known(r.finished for r in good)
    duration = max(ends) - min(starts) if good else math.nan
    prompt = sum(r.prompt_tokens or 0 for r in good)
    output = sum(r.output_tokens or 0 for r in good)
    return Summary(
        requests=len(records),
        failures=dict(failures),
        duration=duration,
        prompt_tokens=prompt,
        output_tokens=output,
        cached_tokens=sum(r.cached_tokens or 0 for r in good),
        output_rate=output / duration if good else math.nan,
        prompt_rate=prompt / duration if good else math.nan,
        ttft_p50=percentile(_known(r.ttft for r in good), 50),
        ttft_p99=percentile(_known(r.ttft for r in good), 99),
        tpot_p50=percentile(_known(r.tpot for r in good), 50),
        tpot_p99=percentile(_known(r.tpot for r in good), 99),
        latency_p50=percentile(_known(r.latency for r in good), 50),
        scheduled_latency_p50=percentile(_known(r.scheduled_latency for r in good), 50),
        dispatch_delay_p99=percentile([r.dispatched - r.due for r in good if r.dispatched is not None], 99),
    )
