"""What the terminal shows."""

from __future__ import annotations

import math
import statistics
from collections.abc import Callable, Sequence
from urllib.parse import urlsplit

from octavo_bench.client import Distribution
from octavo_bench.serve.document import by_metric
from octavo_bench.serve.plan import Plan
from octavo_bench.serve.run import RunResult
from octavo_bench.serve.schedule import Traffic

WIDTH = 62
_TITLES = {
    "ttft": ("Time to first token", "TTFT"),
    "tpot": ("Time per output token (without the first)", "TPOT"),
    "itl": ("Inter-token latency (between chunks)", "ITL"),
    "e2el": ("End-to-end latency", "E2EL"),
    "client_queue_time": ("Queue in the client", "client queue"),
    "e2el_including_client_queue": ("End-to-end latency with the client's queue", "E2EL"),
    "scheduled_e2el": ("Latency from when requests were due", "scheduled E2EL"),
}


def one_run(plan: Plan, result: RunResult) -> str:
    """Every figure of one run, in the order that users of ``vllm bench serve`` know."""
    summary, traffic = result.summary, result.traffic
    lines = [_rule("Serving Benchmark Result", "=")]
    if result.stopped is not None:
        lines.append(f"PARTIAL: {result.stopped}")
    lines += [_row("Successful requests:", summary.completed), _row("Failed requests:", summary.failed)]
    lines += [_row(f"  {kind}:", count) for kind, count in sorted(summary.failures.items())]
    if cut := len(result.records) - len(result.measured):
        lines.append(_row("Requests in the warm-up cut:", cut))
    if traffic.cancel_share:
        lines.append(_row("Cancelled by the client:", summary.cancelled))
    if traffic.slow_share:
        lines.append(_row("Slow readers (not in latencies):", summary.slow_readers))
    if traffic.concurrency is not None:
        lines.append(_row("Maximum request concurrency:", traffic.concurrency))
    if math.isfinite(traffic.rate):
        lines.append(_row("Request rate configured (RPS):", traffic.rate))
    lines += [
        _row("Benchmark duration (s):", summary.duration),
        _row("Total input tokens:", summary.prompt_tokens),
        _row("  from the server's cache:", summary.cached_tokens),
        _row("Total generated tokens:", summary.output_tokens),
        _row("Request throughput (req/s):", summary.request_rate),
    ]
    if result.good_share is not None:
        lines.append(_row("Request goodput (req/s):", result.good / summary.duration))
        lines.append(_row("  share of good requests (%):", result.good_share * 100))
    lines += [
        _row("Output token throughput (tok/s):", summary.output_rate),
        _row("Peak output token throughput (tok/s):", summary.max_output_rate),
        _row("Peak concurrent requests:", summary.max_concurrent),
        _row("Total token throughput (tok/s):", summary.output_rate + summary.prompt_rate),
        _row("Tokens per chunk:", summary.tokens_per_chunk),
    ]
    if summary.uncounted:
        lines.append(_row("Without the server's token count:", summary.uncounted))
    metrics = by_metric(summary, queue=traffic.concurrency is not None, scheduled=traffic.scheduled)
    for name in plan.output.metrics:
        if name in metrics:
            title, short = _TITLES[name]
            lines += [_rule(title, "-"), *_distribution(short, metrics[name], plan.output.percentiles)]
    if result.steady is not None:
        lines.append(_rule("Steady state", "-"))
        lines.append(_row("Window (s):", result.steady.duration))
        lines.append(_row("Request throughput (req/s):", result.steady.request_rate))
        lines.append(_row("Output token throughput (tok/s):", result.steady.output_rate))
        lines.append(_row("P99 TTFT (ms):", result.steady.ttft.percentile(99) * 1e3))
        lines.append(_row("P99 TPOT (ms):", result.steady.tpot.percentile(99) * 1e3))
    lines.append(_rule("Client", "-"))
    if traffic.scheduled:
        lines.append(_row("P99 dispatch delay (ms):", summary.dispatch_delay.percentile(99) * 1e3))
    lines.append(_row("P99 event loop lag (ms):", max(w.lag_p99 for w in result.watches) * 1e3))
    lines.append(_row("CPU of the busiest process (%):", max(w.cpu_mean for w in result.watches) * 100))
    lines += [f"CLIENT-LIMITED: {reason}" for reason in result.limits]
    if result.limits:
        lines.append(
            "The figures may be the client's: give it a quieter machine, more cores, or --processes."
        )
    lines.append("=" * WIDTH)
    return "\n".join(lines)


def _rule(title: str, mark: str) -> str:
    return f" {title} ".center(WIDTH, mark)


def _row(name: str, value: float | int) -> str:
    text = str(value) if isinstance(value, int) else "-" if math.isnan(value) else f"{value:.2f}"
    return f"{name:<46} {text:>15}"


def _distribution(name: str, values: Distribution, percentiles: Sequence[float]) -> list[str]:
    rows = [("Mean", values.mean), ("Median", values.median)]
    rows += [(f"P{q:g}", values.percentile(q)) for q in percentiles]
    return [_row(f"{word} {name} (ms):", value * 1e3) for word, value in rows]


def traffic_name(traffic: Traffic) -> str:
    """The load of one run in a few words."""
    parts = []
    if traffic.self_timed:
        parts.append("trace" if traffic.time_scale == 1 else f"trace x{traffic.time_scale:g}")
    elif traffic.ramp:
        parts.append(f"{traffic.ramp_start:g}..{traffic.ramp_end:g}/s")
    elif math.isfinite(traffic.rate):
        parts.append(f"{traffic.rate:.4g}/s")
    if traffic.concurrency is not None:
        parts.append(f"{traffic.concurrency} at once")
    return ", ".join(parts) or "all at once"


_COLUMNS: tuple[tuple[str, Callable[[RunResult], float]], ...] = (
    ("req/s", lambda r: r.summary.request_rate),
    ("tok/s", lambda r: r.summary.output_rate),
    ("TTFT p50", lambda r: r.summary.ttft.median * 1e3),
    ("p99", lambda r: r.summary.ttft.percentile(99) * 1e3),
    ("TPOT p50", lambda r: r.summary.tpot.median * 1e3),
    ("p99", lambda r: r.summary.tpot.percentile(99) * 1e3),
    ("E2EL p50", lambda r: r.summary.latency.median * 1e3),
    ("p99", lambda r: r.summary.latency.percentile(99) * 1e3),
    ("good %", lambda r: math.nan if r.good_share is None else r.good_share * 100),
    ("failed", lambda r: float(r.summary.failed)),
)


def many_runs(results: Sequence[RunResult]) -> str:
    """A line per load and server, medians over the rounds; with two servers, how the second compares to the first."""
    urls = list(dict.fromkeys(r.target.root for r in results))
    names = {url: urlsplit(url).netloc for url in urls}
    groups: dict[tuple[str, str], list[RunResult]] = {}
    for result in results:
        groups.setdefault((traffic_name(result.traffic), result.target.root), []).append(result)
    left = max(24, *(len(load) + len(names[url]) + 2 for load, url in groups))
    lines = [" " * left + "".join(f"{title:>10}" for title, _ in _COLUMNS)]
    for (load, url), runs in groups.items():
        figures = [statistics.median(figure(r) for r in runs) for _, figure in _COLUMNS]
        note = "  client-limited" if any(r.limits for r in runs) else ""
        note += "  partial" if any(r.stopped for r in runs) else ""
        lines.append(f"{f'{load}  {names[url]}':<{left}}" + "".join(map(_cell, figures)) + note)
        if len(urls) == 2 and url == urls[1] and (first := groups.get((load, urls[0]))):
            base = [statistics.median(figure(r) for r in first) for _, figure in _COLUMNS]
            ratios = [b / a if a else math.nan for a, b in zip(base, figures, strict=True)]
            lines.append(f"{'  second / first':<{left}}" + "".join(map(_cell, ratios)))
    reasons = dict.fromkeys(reason for r in results for reason in r.limits)
    return "\n".join([*lines, *(f"client-limited: {reason}" for reason in reasons)])


def _cell(value: float) -> str:
    return f"{'-' if math.isnan(value) else f'{value:.2f}':>10}"
