"""PNG pictures of the results."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from octavo_bench.client.summary import token_arrivals
from octavo_bench.serve.run import RunResult
from octavo_bench.serve.table import traffic_name

_GAUGES = ("num_requests_running", "num_requests_waiting")


def draw(results: Sequence[RunResult], path: Path) -> None:
    """One run: its latencies and its course. Several: how each figure moves with the load."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(11, 7.5), layout="constrained")
    axes = figure.subplots(2, 2)
    if len(results) == 1:
        _one(results[0], axes)
    else:
        _many(results, axes)
    figure.savefig(path, dpi=110)


def _one(result: RunResult, axes: Any) -> None:
    summary = result.summary
    for axis, parts, title in (
        (axes[0][0], (("TTFT", summary.ttft), ("E2EL", summary.latency)), "Requests: latency"),
        (axes[0][1], (("ITL", summary.itl), ("TPOT", summary.tpot)), "Tokens: latency"),
    ):
        for name, values in parts:
            if len(values):
                ordered = np.sort(values.values) * 1e3
                axis.plot(ordered, np.arange(1, len(ordered) + 1) / len(ordered) * 100, label=name)
                axis.legend()
        axis.set(title=title, xlabel="ms", ylabel="share at most this, %")
        axis.set_xscale("log", nonpositive="clip")
    times, counts = token_arrivals(result.records)
    if len(times):
        seconds = np.bincount(np.floor(times).astype(int), weights=counts)
        axes[1][0].stairs(seconds, fill=True)
    axes[1][0].set(title="Output tokens per second", xlabel="s", ylabel="tokens/s")
    starts = np.sort([r.dispatched for r in result.records if r.dispatched is not None])
    ends = np.sort([r.ended for r in result.records if r.ended is not None])
    moments = np.sort(np.concatenate([starts, ends]))
    if len(moments):
        under_way = np.searchsorted(starts, moments, "right") - np.searchsorted(ends, moments, "right")
        axes[1][1].step(moments, under_way, where="post", label="under way in the client")
    for name, samples in result.server.series.items():
        if any(gauge in name for gauge in _GAUGES):
            axes[1][1].plot(result.server.times, samples, label=name.split("{")[0])
    axes[1][1].set(title="Requests", xlabel="s")
    if axes[1][1].lines:
        axes[1][1].legend()


def _many(results: Sequence[RunResult], axes: Any) -> None:
    urls = list(dict.fromkeys(r.target.root for r in results))
    loads = list(dict.fromkeys(traffic_name(r.traffic) for r in results))
    pictures: tuple[tuple[Any, str, str, Callable[[RunResult], float]], ...] = (
        (axes[0][0], "TTFT, p99", "ms", lambda r: r.summary.ttft.percentile(99) * 1e3),
        (axes[0][1], "TPOT, p99", "ms", lambda r: r.summary.tpot.percentile(99) * 1e3),
        (axes[1][0], "Output tokens", "tokens/s", lambda r: r.summary.output_rate),
        (axes[1][1], "Requests completed", "requests/s", lambda r: r.summary.request_rate),
    )
    for axis, title, unit, figure in pictures:
        for url in urls:
            runs = [r for r in results if r.target.root == url]
            places = [loads.index(traffic_name(r.traffic)) for r in runs]
            axis.plot(places, [figure(r) for r in runs], "o-" if len(loads) > 1 else "o", label=url)
        axis.set(title=title, ylabel=unit)
        axis.set_xticks(range(len(loads)), loads, rotation=30, ha="right")
        axis.set_ylim(bottom=0)
        axis.legend()
