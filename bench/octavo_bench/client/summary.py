"""Figures of a run. Failures are counted by kind and never enter an average."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from octavo_bench.client.records import Record


class Distribution:
    """Seconds that were measured; every figure of none is NaN."""

    def __init__(self, values: Iterable[float | None]) -> None:
        self.values: npt.NDArray[np.float64] = np.array(
            [v for v in values if v is not None], dtype=np.float64
        )

    def __len__(self) -> int:
        return len(self.values)

    @property
    def mean(self) -> float:
        return float(self.values.mean()) if len(self) else math.nan

    @property
    def std(self) -> float:
        return float(self.values.std()) if len(self) else math.nan

    @property
    def median(self) -> float:
        return self.percentile(50)

    def percentile(self, q: float) -> float:
        """The q-th percentile (0 to 100) with linear interpolation."""
        return float(np.percentile(self.values, q)) if len(self) else math.nan


@dataclass(frozen=True, slots=True)
class Window:
    """A stretch of the run in seconds, its end not included."""

    start: float
    end: float

    def holds(self, moment: float | None) -> bool:
        return moment is not None and self.start <= moment < self.end


@dataclass(frozen=True, slots=True)
class Summary:
    """Totals and distributions of a run; times in seconds, rates per second.

    Attributes:
        completed: answers that ended as they should, slow readers' included.
        duration: from the first dispatch to the last answer, or the window's length.
        output_tokens: of completed requests, by the server's count.
        uncounted: completed requests for which the server sent no count, so that their chunks were counted.
        chunks: of completed requests.
        latency: dispatch to end; ``scheduled_latency``: from the moment the request was due.
        max_output_rate: most tokens within one second.
        max_concurrent: most requests under way at once.
    """

    requests: int
    completed: int
    cancelled: int
    slow_readers: int
    failures: dict[str, int]
    duration: float
    prompt_tokens: int
    output_tokens: int
    cached_tokens: int
    uncounted: int
    chunks: int
    request_rate: float
    output_rate: float
    prompt_rate: float
    max_output_rate: float
    max_concurrent: int
    ttft: Distribution
    tpot: Distribution
    itl: Distribution
    latency: Distribution
    scheduled_latency: Distribution
    client_queue: Distribution
    dispatch_delay: Distribution

    @property
    def failed(self) -> int:
        return sum(self.failures.values())

    @property
    def tokens_per_chunk(self) -> float:
        return self.output_tokens / self.chunks if self.chunks else math.nan


def summarize(records: Sequence[Record], window: Window | None = None) -> Summary:
    """Figures of the whole run, or of the requests that were dispatched within ``window`` and what arrived in it."""
    if window is not None:
        records = [r for r in records if r.dispatched is not None]
    members = records if window is None else [r for r in records if window.holds(r.dispatched)]
    good = [r for r in members if r.ok]
    timed = [r for r in members if r.measured]
    arrivals = token_arrivals(r for r in (good if window is None else records))
    if window is None:
        duration = _span(good)
        ended, tokens = len(good), float(sum(r.tokens for r in good))
    else:
        duration = window.end - window.start
        ended = sum(r.ok and window.holds(r.finished) for r in records)
        inside = (arrivals[0] >= window.start) & (arrivals[0] < window.end)
        arrivals = (arrivals[0][inside], arrivals[1][inside])
        tokens = float(arrivals[1].sum())
    prompt = sum(r.prompt_tokens or 0 for r in good)
    per_second = (lambda total: total / duration) if duration > 0 else (lambda total: math.nan)
    return Summary(
        requests=len(members),
        completed=len(good),
        cancelled=sum(r.cancelled for r in members),
        slow_readers=sum(r.slow_reader for r in good),
        failures=dict(Counter(r.failure for r in members if r.failure)),
        duration=duration,
        prompt_tokens=prompt,
        output_tokens=sum(r.tokens for r in good),
        cached_tokens=sum(r.cached_tokens or 0 for r in good),
        uncounted=sum(r.output_tokens is None for r in good),
        chunks=sum(len(r.chunks) for r in good),
        request_rate=per_second(ended),
        output_rate=per_second(tokens),
        prompt_rate=per_second(prompt),
        max_output_rate=_busiest_second(*arrivals),
        max_concurrent=_most_at_once(members),
        ttft=Distribution(r.ttft for r in timed),
        tpot=Distribution(r.tpot for r in timed),
        itl=Distribution(np.concatenate([np.diff(r.chunks) for r in timed]) if timed else ()),
        latency=Distribution(r.latency for r in timed),
        scheduled_latency=Distribution(r.scheduled_latency for r in timed),
        client_queue=Distribution(r.client_queue for r in timed),
        dispatch_delay=Distribution(r.dispatch_delay for r in members),
    )


def token_arrivals(records: Iterable[Record]) -> tuple[npt.NDArray[np.float64], npt.NDArray[np.float64]]:
    """When tokens arrived, and how many then: a request's tokens are spread evenly over its chunks."""
    times: list[npt.NDArray[np.float64]] = [np.empty(0)]
    counts: list[npt.NDArray[np.float64]] = [np.empty(0)]
    for record in records:
        if record.chunks:
            times.append(np.array(record.chunks))
            counts.append(np.full(len(record.chunks), record.tokens / len(record.chunks)))
    return np.concatenate(times), np.concatenate(counts)


def steady_window(records: Sequence[Record], warmup: float = 0.0) -> Window | None:
    """From the first answer, or the end of the warm-up where that is later, to the last dispatch.

    In between, load is neither building up nor running out. None where there is no such stretch, as when everything
    is sent at once.
    """
    ends = [r.finished for r in records if r.finished is not None]
    starts = [r.dispatched for r in records if r.dispatched is not None]
    if not ends or not starts:
        return None
    window = Window(max(min(ends), warmup), max(starts))
    return window if window.end > window.start else None


def _span(records: Sequence[Record]) -> float:
    starts = [r.dispatched for r in records if r.dispatched is not None]
    ends = [r.finished for r in records if r.finished is not None]
    return max(ends) - min(starts) if starts and ends else math.nan


def _busiest_second(times: npt.NDArray[np.float64], counts: npt.NDArray[np.float64]) -> float:
    if not len(times):
        return 0.0
    seconds = np.floor(times - times.min()).astype(int)
    return float(np.bincount(seconds, weights=counts).max())


def _most_at_once(records: Sequence[Record]) -> int:
    changes = sorted(
        change
        for r in records
        if r.dispatched is not None and r.ended is not None
        for change in ((r.dispatched, 1), (r.ended, -1))
    )
    return int(np.cumsum([step for _, step in changes]).max()) if changes else 0
