"""All that a command line asks for, checked."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from octavo.errors import InvalidArgumentError
from octavo_bench.client import Target
from octavo_bench.datasets import DatasetOptions
from octavo_bench.serve.goodput import Goodput
from octavo_bench.serve.schedule import Traffic

METRICS = (
    "ttft",
    "tpot",
    "itl",
    "e2el",
    "client_queue_time",
    "e2el_including_client_queue",
    "scheduled_e2el",
)


@dataclass(frozen=True, slots=True)
class Search:
    """Look for the highest rate at which ``share`` of the requests are good."""

    start: float = 1.0
    share: float = 0.99
    tolerance: float = 0.05
    trials: int = 14

    def check(self) -> None:
        if not 0 < self.start < math.inf:
            raise InvalidArgumentError(f"search_start {self.start}: above 0", param="search_start")
        if not 0 < self.share <= 1:
            raise InvalidArgumentError(f"search_share {self.share}: above 0, at most 1", param="search_share")
        if not 0 < self.tolerance < 1:
            raise InvalidArgumentError(
                f"search_tolerance {self.tolerance}: in (0, 1)", param="search_tolerance"
            )
        if self.trials < 2:
            raise InvalidArgumentError(f"search_trials {self.trials}: at least 2", param="search_trials")


@dataclass(frozen=True, slots=True)
class Output:
    """What is shown and kept.

    Attributes:
        metrics, percentiles: rows of the table and keys of the JSON.
        save, append, detailed: write a JSON file; as a further line of it; with one entry per request.
        path: that file.
        plot: a PNG file.
        metadata: further keys of the JSON.
    """

    metrics: Sequence[str] = ("ttft", "tpot", "itl")
    percentiles: Sequence[float] = (99.0,)
    save: bool = False
    append: bool = False
    detailed: bool = False
    path: Path | None = None
    plot: Path | None = None
    progress: bool = True
    metadata: Mapping[str, str] = field(default_factory=dict)
    label: str | None = None
    backend: str = "openai"
    tokenizer: str | None = None

    def check(self) -> None:
        for name in self.metrics:
            if name not in METRICS:
                raise InvalidArgumentError(
                    f"percentile_metrics {name!r}: there are {', '.join(METRICS)}", param="percentile_metrics"
                )
        for q in self.percentiles:
            if not 0 <= q <= 100:
                raise InvalidArgumentError(
                    f"metric_percentiles {q}: from 0 to 100", param="metric_percentiles"
                )
        for path in (self.path, self.plot):
            if path is not None and not path.parent.is_dir():
                raise InvalidArgumentError(f"{path.parent} is not a folder", param="result_dir")


@dataclass(frozen=True, slots=True)
class Plan:
    """One command.

    Attributes:
        targets: servers, measured in turn; a model of "" is the first that the server lists.
        points: traffic of each measurement, several in a sweep.
        rounds: how often all of it is repeated.
        warmups: requests that are sent and answered before anything is measured.
        warmup_cut: requests due in the first seconds of a run are not measured.
        ready_timeout: how long to wait for a server that is starting.
        metrics_url: where to scrape; None: ``/metrics`` of each server.
    """

    targets: Sequence[Target]
    dataset: DatasetOptions
    points: Sequence[Traffic]
    num_prompts: int = 1000
    seed: int = 0
    rounds: int = 1
    processes: int = 1
    warmups: int = 0
    warmup_cut: float = 0.0
    ready_timeout: float = 0.0
    metrics_url: str | None = None
    scrape_interval: float = 1.0
    goodput: Goodput | None = None
    search: Search | None = None
    output: Output = field(default_factory=Output)

    def check(self) -> None:
        """Raises ``InvalidArgumentError`` for what cannot be done."""
        self.dataset.check()
        self.output.check()
        for name, value, least in (
            ("num_prompts", self.num_prompts, 1), ("rounds", self.rounds, 1), ("processes", self.processes, 1),
            ("num_warmups", self.warmups, 0), ("warmup_cut_s", self.warmup_cut, 0),
            ("scrape_interval", self.scrape_interval, 0), ("ready_check_timeout_sec", self.ready_timeout, 0),
            ("seed", self.seed, 0),
        ):  # fmt: skip
            if not least <= value < math.inf:
                raise InvalidArgumentError(f"{name} {value}: at least {least}", param=name)
        for traffic in self.points:
            _check_traffic(traffic, self.dataset)
        if self.search is not None:
            self.search.check()
            if self.goodput is None:
                raise InvalidArgumentError(
                    "search_rate needs limits of a good answer: goodput ttft:500 tpot:50", param="goodput"
                )
            if len(self.points) > 1 or self.points[0].scheduled:
                raise InvalidArgumentError(
                    "search_rate sets the rate itself: no request_rate, ramp, sweep or self_timed",
                    param="search_rate",
                )


def _check_traffic(traffic: Traffic, dataset: DatasetOptions) -> None:
    for name, value in (("request_rate", traffic.rate), ("burstiness", traffic.burstiness)):
        if not value > 0:
            raise InvalidArgumentError(f"{name} {value}: above 0", param=name)
    if not 0 < traffic.time_scale < math.inf:
        raise InvalidArgumentError(f"time_scale {traffic.time_scale}: above 0", param="time_scale")
    if traffic.concurrency is not None and traffic.concurrency < 1:
        raise InvalidArgumentError(
            f"max_concurrency {traffic.concurrency}: at least 1", param="max_concurrency"
        )
    if traffic.ramp is not None:
        if math.isfinite(traffic.rate):
            raise InvalidArgumentError(
                "request_rate and ramp_up_strategy exclude each other", param="request_rate"
            )
        for name, rate in (("ramp_up_start_rps", traffic.ramp_start), ("ramp_up_end_rps", traffic.ramp_end)):
            if not 0 < rate < math.inf:
                raise InvalidArgumentError(f"{name} {rate}: above 0", param=name)
    if traffic.self_timed and not dataset.timed:
        raise InvalidArgumentError(
            f"self_timed: dataset_name {dataset.name} has no times", param="self_timed"
        )
    if traffic.self_timed and (traffic.ramp or math.isfinite(traffic.rate)):
        raise InvalidArgumentError(
            "self_timed takes the file's times: no request_rate, no ramp", param="self_timed"
        )
    for name, share in (("cancel_share", traffic.cancel_share), ("slow_reader_share", traffic.slow_share)):
        if not 0 <= share <= 1:
            raise InvalidArgumentError(f"{name} {share}: from 0 to 1", param=name)
    if traffic.cancel_share + traffic.slow_share > 1:
        raise InvalidArgumentError(
            "cancel_share and slow_reader_share exceed 1 together", param="cancel_share"
        )
    if traffic.cancel_after < 1 or not traffic.slow_rate > 0:
        raise InvalidArgumentError(
            f"cancel_after {traffic.cancel_after}, slow_reader_rate {traffic.slow_rate}: above 0",
            param="cancel_after",
        )


def as_settings(plan: Plan) -> dict[str, Any]:
    """What of a plan a reader of its results needs to know."""
    dataset = {
        name: getattr(plan.dataset, name)
        for name in ("name", "path", "input_len", "output_len", "range_ratio", "prefix_len", "num_prefixes", "zipf",
                     "turns", "think_s", "max_input_len", "max_output_len", "text")
    }  # fmt: skip
    return {"dataset": dataset, "seed": plan.seed, "rounds": plan.rounds, "processes": plan.processes}
