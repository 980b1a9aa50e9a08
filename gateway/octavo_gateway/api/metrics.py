"""What requests went through, observed in one place from the timestamps of their deltas."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Sequence

from octavo_gateway.api.engine import Delta

_SECONDS = (
    0.001,
    0.0025,
    0.005,
    0.01,
    0.02,
    0.04,
    0.06,
    0.08,
    0.1,
    0.25,
    0.5,
    0.75,
    1.0,
    2.5,
    5.0,
    7.5,
    10.0,
)
_FIRST_TOKEN_SECONDS = (*_SECONDS, 20.0, 40.0, 80.0, 160.0, 640.0)
_LONG_SECONDS = (*_SECONDS[8:], 15.0, 20.0, 30.0, 40.0, 50.0, 60.0, 120.0, 240.0, 480.0, 960.0)
_TOKENS = tuple(float(m * 10**e) for e in range(6) for m in (1, 2, 5))

FINISH_REASONS = ("stop", "length", "abort", "error")


class Histogram:
    """Counts per bucket and a sum; an observation is one bisection."""

    def __init__(self, name: str, help: str, bounds: Sequence[float]) -> None:
        self.name = name
        self.help = help
        self.bounds = tuple(bounds)
        self.counts = [0] * (len(self.bounds) + 1)  # the last is beyond every bound
        self.sum = 0.0

    def observe(self, value: float, times: int = 1) -> None:
        self.counts[bisect_left(self.bounds, value)] += times
        self.sum += value * times

    def cumulative(self) -> list[tuple[str, float]]:
        """(upper bound, how many are at most that), as Prometheus wants them."""
        total = 0
        rows = []
        for bound, count in zip((*self.bounds, float("inf")), self.counts, strict=True):
            total += count
            rows.append(("+Inf" if bound == float("inf") else str(bound), float(total)))
        return rows


class Metrics:
    """The counters and histograms of one engine. Belongs to the event loop's thread."""

    def __init__(self) -> None:
        self.ttft = Histogram(
            "vllm:time_to_first_token_seconds",
            "From the request's arrival to its first token.",
            _FIRST_TOKEN_SECONDS,
        )
        self.inter_token = Histogram(
            "vllm:inter_token_latency_seconds", "Between one token and the next of a choice.", _SECONDS
        )
        self.e2e = Histogram(
            "vllm:e2e_request_latency_seconds", "From the request's arrival to its last token.", _LONG_SECONDS
        )
        self.queue = Histogram(
            "vllm:request_queue_time_seconds", "From the request's arrival to its first step.", _LONG_SECONDS
        )
        self.prefill = Histogram(
            "vllm:request_prefill_time_seconds", "From the first step to the first token.", _LONG_SECONDS
        )
        self.decode = Histogram(
            "vllm:request_decode_time_seconds", "From the first token to the last.", _LONG_SECONDS
        )
        self.prompt_tokens = Histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", _TOKENS)
        self.generation_tokens = Histogram(
            "vllm:request_generation_tokens", "Generated tokens of a request.", _TOKENS
        )
        self.finished = dict.fromkeys(FINISH_REASONS, 0)
        self.refused: dict[int, int] = {}  # status -> requests

    @property
    def histograms(self) -> tuple[Histogram, ...]:
        return (
            self.ttft,
            self.inter_token,
            self.e2e,
            self.queue,
            self.prefill,
            self.decode,
            self.prompt_tokens,
            self.generation_tokens,
        )

    def refuse(self, status: int) -> None:
        self.refused[status] = self.refused.get(status, 0) + 1


class RequestObserver:
    """Follows one request from its arrival (monotonic seconds) to its end."""

    def __init__(self, metrics: Metrics, arrival: float) -> None:
        self._metrics = metrics
        self._arrival = arrival
        self._last: dict[int, float] = {}  # choice -> time of its last token
        self._tokens = 0
        self._first_token = 0.0
        self._ended = False

    def on_delta(self, delta: Delta, tokens: int) -> None:
        """`tokens`: how many the delta carries."""
        if not tokens:
            return
        self._tokens += tokens
        now = delta.last_token
        before = self._last.get(delta.choice)
        self._last[delta.choice] = now
        if before is not None:
            self._metrics.inter_token.observe(max(0.0, now - before) / tokens, tokens)
            return
        if not self._first_token:
            self._first_token = delta.first_token
            self._metrics.ttft.observe(max(0.0, delta.first_token - self._arrival))
        if tokens > 1:
            gap = max(0.0, now - delta.first_token) / (tokens - 1)
            self._metrics.inter_token.observe(gap, tokens - 1)

    def on_finish(self, delta: Delta, reason: str) -> None:
        """The last delta of the last choice; later calls do nothing."""
        if self._ended:
            return
        self._ended = True
        m = self._metrics
        m.finished[reason if reason in m.finished else "error"] += 1
        m.prompt_tokens.observe(delta.prompt_tokens)
        m.generation_tokens.observe(self._tokens)
        last = delta.last_token or time.monotonic()
        m.e2e.observe(max(0.0, last - self._arrival))
        if delta.scheduled:
            m.queue.observe(max(0.0, delta.scheduled - self._arrival))
            if delta.first_token:
                m.prefill.observe(max(0.0, delta.first_token - delta.scheduled))
                m.decode.observe(max(0.0, last - delta.first_token))

    def on_abandon(self) -> None:
        """The client is gone before the request has ended."""
        if not self._ended:
            self._ended = True
            self._metrics.finished["abort"] += 1
