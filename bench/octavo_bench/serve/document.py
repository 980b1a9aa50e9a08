"""The result as JSON: the keys of ``vllm bench serve``, and what it lacks under ``harness``."""

from __future__ import annotations

import json
import math
from dataclasses import asdict
from datetime import datetime
from pathlib import Path
from typing import Any

from octavo import __version__
from octavo_bench.client import Distribution, Record, Summary
from octavo_bench.client.histogram import encode_histogram
from octavo_bench.serve.plan import Plan, as_settings
from octavo_bench.serve.run import RunResult

_PER_REQUEST = ("input_lens", "output_lens", "start_times", "ttfts", "itls", "generated_texts", "errors")


def by_metric(summary: Summary, *, queue: bool, scheduled: bool) -> dict[str, Distribution]:
    """Distributions by vLLM's names; those of the client's queue only where there can be one."""
    out = {"ttft": summary.ttft, "tpot": summary.tpot, "itl": summary.itl, "e2el": summary.latency}
    if queue:
        out["client_queue_time"] = summary.client_queue
        if scheduled:
            out["e2el_including_client_queue"] = Distribution(
                (summary.latency.values + summary.client_queue.values).tolist()
            )
    if scheduled:
        out["scheduled_e2el"] = summary.scheduled_latency
    return out


def document(plan: Plan, result: RunResult) -> dict[str, Any]:
    """All of one run."""
    summary, traffic = result.summary, result.traffic
    tokens = summary.prompt_tokens + summary.output_tokens
    out: dict[str, Any] = {
        "date": datetime.now().strftime("%Y%m%d-%H%M%S"),
        "endpoint_type": plan.output.backend,
        "backend": plan.output.backend,
        "label": plan.output.label,
        "model_id": result.target.model,
        "tokenizer_id": plan.output.tokenizer,
        "num_prompts": plan.num_prompts,
        **plan.output.metadata,
        "request_rate": traffic.rate if math.isfinite(traffic.rate) else "inf",
        "burstiness": traffic.burstiness if math.isfinite(traffic.burstiness) else "inf",
        "max_concurrency": traffic.concurrency,
    }
    if traffic.ramp:
        out |= {
            "ramp_up_strategy": traffic.ramp,
            "ramp_up_start_rps": traffic.ramp_start,
            "ramp_up_end_rps": traffic.ramp_end,
        }
    out |= {
        "duration": summary.duration,
        "completed": summary.completed,
        "failed": summary.failed,
        "total_input_tokens": summary.prompt_tokens,
        "total_output_tokens": summary.output_tokens,
        "request_throughput": summary.request_rate,
        "request_goodput": result.good / summary.duration if plan.goodput else None,
        "output_throughput": summary.output_rate,
        "total_token_throughput": tokens / summary.duration,
        "max_output_tokens_per_s": summary.max_output_rate,
        "max_concurrent_requests": summary.max_concurrent,
        **_per_request(result.measured),
    }
    metrics = by_metric(summary, queue=traffic.concurrency is not None, scheduled=traffic.scheduled)
    for name in plan.output.metrics:
        if name in metrics:
            out |= _figures(name, metrics[name], plan)
    if not plan.output.detailed:
        for name in _PER_REQUEST:
            del out[name]
    out["harness"] = _harness(plan, result, metrics)
    return {key: _clean(value) for key, value in out.items()}


def _figures(name: str, values: Distribution, plan: Plan) -> dict[str, float]:
    return {
        f"mean_{name}_ms": values.mean * 1e3,
        f"median_{name}_ms": values.median * 1e3,
        f"std_{name}_ms": values.std * 1e3,
        **{f"p{q:g}_{name}_ms": values.percentile(q) * 1e3 for q in plan.output.percentiles},
    }


def _per_request(records: list[Record]) -> dict[str, list[Any]]:
    return {
        "input_lens": [r.prompt_tokens or 0 for r in records],
        "output_lens": [r.tokens if r.ok else 0 for r in records],
        "ttfts": [r.ttft or 0.0 for r in records],
        "itls": [[b - a for a, b in zip(r.chunks, r.chunks[1:], strict=False)] for r in records],
        "latencies": [r.latency or 0.0 for r in records],
        "start_times": [r.dispatched for r in records],
        "queue_times": [r.client_queue or 0.0 for r in records],
        "generated_texts": [r.text for r in records],
        "errors": [r.error or ("cancelled by the client" if r.cancelled else "") for r in records],
    }


def _harness(plan: Plan, result: RunResult, metrics: dict[str, Distribution]) -> dict[str, Any]:
    summary = result.summary
    delay = summary.dispatch_delay
    return {
        "octavo_version": __version__,
        "url": result.target.url,
        "complete": result.stopped is None,
        "stopped": result.stopped,
        "failures": summary.failures,
        "cancelled": summary.cancelled,
        "slow_readers": summary.slow_readers,
        "in_warmup_cut": len(result.records) - len(result.measured),
        "tokens_per_chunk": summary.tokens_per_chunk,
        "cached_tokens": summary.cached_tokens,
        "requests_without_usage": summary.uncounted,
        "good_share": result.good_share,
        "client_limited": bool(result.limits),
        "client_limits": result.limits,
        "client_processes": [asdict(watch) for watch in result.watches],
        "dispatch_delay_ms": {f"p{q:g}": delay.percentile(q) * 1e3 for q in (50, 99, 100)},
        "steady_state": _steady(result.steady, plan),
        "histograms_us": {name: encode_histogram(values.values) for name, values in metrics.items()},
        "server_metrics": result.server.report(),
        "settings": {**as_settings(plan), "run_seed": result.seed},
    }


def _steady(steady: Summary | None, plan: Plan) -> dict[str, Any] | None:
    if steady is None:
        return None
    out: dict[str, Any] = {
        "duration": steady.duration,
        "requests": steady.requests,
        "request_throughput": steady.request_rate,
        "output_throughput": steady.output_rate,
    }
    for name, values in (("ttft", steady.ttft), ("tpot", steady.tpot), ("e2el", steady.latency)):
        out |= _figures(name, values, plan)
    return out


def _clean(value: Any) -> Any:
    """JSON has no NaN: null says that there is no figure."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _clean(item) for key, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [_clean(item) for item in value]
    return value


def write(path: Path, documents: list[dict[str, Any]], append: bool) -> None:
    """One document as the file's content; several, or an appended one, as lines."""
    text = "\n".join(json.dumps(document) for document in documents) + "\n"
    with path.open("a" if append else "w", encoding="utf-8") as file:
        file.write(text)
