"""GET /metrics: the names that dashboards and routers for LLM servers already know."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily, Metric
from prometheus_client.registry import Collector

from octavo_gateway.api.metrics import Histogram, Metrics

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_LABELS = ("model_name", "engine")

# name -> (help, key of Engine.stats())
_GAUGES = {
    "vllm:num_requests_running": ("Requests that the engine works on.", "running"),
    "vllm:num_requests_waiting": ("Requests that wait for the engine.", "waiting"),
    "octavo:kv_blocks_live": ("Blocks that a running request holds.", "live_blocks"),
    "octavo:kv_blocks_cached": ("Blocks that nobody holds and a later prompt may reuse.", "cached_blocks"),
    "octavo:kv_blocks_free": ("Blocks without content.", "free_blocks"),
    "octavo:kv_block_references": (
        "Entries in the block tables of running requests: more than live blocks where they are shared.",
        "table_entries",
    ),
}
_COUNTERS = {
    "vllm:prompt_tokens": ("Prompt tokens of accepted requests.", "prompt_tokens"),
    "vllm:generation_tokens": ("Generated tokens.", "generation_tokens"),
    "vllm:prefix_cache_queries": ("Prompt tokens looked up in the prefix cache.", "prefix_queries"),
    "vllm:prefix_cache_hits": ("Prompt tokens found in the prefix cache.", "prefix_hits"),
    "vllm:num_preemptions": ("Requests preempted for want of blocks.", "preemptions"),
    "octavo:engine_steps": ("Steps of the engine.", "steps"),
    "octavo:step_tokens": ("Tokens that went through the model, prompt and generated.", "step_tokens"),
    "octavo:failed_steps": ("Steps that were undone and tried again.", "failed_steps"),
    "octavo:shrunk_steps": (
        "Of them, those after which smaller ones were tried: memory was short.",
        "shrunk_steps",
    ),
    "octavo:non_finite_rows": (
        "Rows whose logits were not finite; their requests failed.",
        "non_finite_rows",
    ),
}
_QUEUE_REASONS = ("next_step", "no_blocks", "token_budget", "sequence_limit")
_CONFIG_KEYS = ("block_size", "num_blocks", "kv_dtype", "max_model_len", "enable_prefix_caching")


class _EngineCollector(Collector):
    def __init__(
        self, model: str, stats: Mapping[str, Any], info: Mapping[str, Any], metrics: Metrics
    ) -> None:
        self._values = (model, "0")
        self._stats = stats
        self._info = info
        self._metrics = metrics

    def collect(self) -> Iterable[Metric]:
        for name, (text, key) in _GAUGES.items():
            yield self._gauge(name, text, float(self._stats.get(key, 0)))
        total = self._stats.get("total_blocks", 0)
        usage = self._stats.get("live_blocks", 0) / total if total else 0.0
        yield self._gauge("vllm:kv_cache_usage_perc", "Share of the blocks that are live, 0 to 1.", usage)
        yield self._cache_config()
        yield self._queue_reason()
        for name, (text, key) in _COUNTERS.items():
            counter = CounterMetricFamily(name, text, labels=_LABELS)
            counter.add_metric(self._values, float(self._stats.get(key, 0)))
            yield counter
        finished = CounterMetricFamily(
            "vllm:request_success", "Requests that ended.", labels=(*_LABELS, "finished_reason")
        )
        for reason, count in self._metrics.finished.items():
            finished.add_metric((*self._values, reason), count)
        yield finished
        refused = CounterMetricFamily(
            "octavo:requests_refused", "Requests that were refused.", labels=(*_LABELS, "status")
        )
        for status, count in sorted(self._metrics.refused.items()):
            refused.add_metric((*self._values, str(status)), count)
        yield refused
        for histogram in self._metrics.histograms:
            yield self._histogram(histogram)
        yield self._histogram(_iteration_tokens(self._stats))

    def _queue_reason(self) -> GaugeMetricFamily:
        family = GaugeMetricFamily(
            "octavo:queue_waits_for",
            "1 for what held the last admission up; next_step: nothing.",
            labels=(*_LABELS, "reason"),
        )
        reason = self._stats.get("queue_waits_for", _QUEUE_REASONS[0])
        for known in _QUEUE_REASONS:
            family.add_metric((*self._values, known), float(known == reason))
        return family

    def _gauge(self, name: str, text: str, value: float) -> GaugeMetricFamily:
        gauge = GaugeMetricFamily(name, text, labels=_LABELS)
        gauge.add_metric(self._values, value)
        return gauge

    def _histogram(self, histogram: Histogram) -> HistogramMetricFamily:
        family = HistogramMetricFamily(histogram.name, histogram.help, labels=_LABELS)
        family.add_metric(self._values, histogram.cumulative(), histogram.sum)
        return family

    def _cache_config(self) -> GaugeMetricFamily:
        keys = [k for k in _CONFIG_KEYS if k in self._info]
        config = GaugeMetricFamily(
            "vllm:cache_config_info", "How the KV cache is laid out.", labels=(*_LABELS, *keys)
        )
        config.add_metric((*self._values, *(str(self._info[k]) for k in keys)), 1.0)
        return config


def _iteration_tokens(stats: Mapping[str, Any]) -> Histogram:
    """Tokens per step, as the engine counts them: [i] is steps of at most 2^i tokens, the last those of more."""
    counts: Sequence[int] = stats.get("step_sizes", (0,))
    bounds = [float(2**i) for i in range(len(counts) - 1)]
    histogram = Histogram("vllm:iteration_tokens_total", "Tokens that one engine step computed.", bounds)
    histogram.counts = list(counts)
    histogram.sum = float(stats.get("step_tokens", 0))
    return histogram


def render(model: str, stats: Mapping[str, Any], info: Mapping[str, Any], metrics: Metrics) -> bytes:
    """The text that a scraper reads. No label holds anything that a user sent."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(_EngineCollector(model, stats, info, metrics))
    return generate_latest(registry)
