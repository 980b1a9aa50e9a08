"""From the parsed command line to a plan."""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Any

from octavo.errors import InvalidArgumentError
from octavo_bench.client import Target
from octavo_bench.client.target import CHAT, COMPLETIONS
from octavo_bench.datasets import DatasetOptions
from octavo_bench.serve.goodput import Goodput
from octavo_bench.serve.plan import Output, Plan, Search
from octavo_bench.serve.schedule import Traffic
from octavo_bench.traces.read import estimate_tokens

_SAMPLING = (
    "temperature", "top_p", "top_k", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty",
)  # fmt: skip


def make_plan(flags: argparse.Namespace) -> Plan:
    """The checked plan of a command line; raises ``InvalidArgumentError``."""
    endpoint = flags.endpoint or (CHAT if flags.backend == "openai-chat" else COMPLETIONS)
    if not endpoint.startswith("/"):
        raise InvalidArgumentError(f"endpoint {endpoint!r}: a path that begins with /", param="endpoint")
    targets = _targets(flags, endpoint)
    plan = Plan(
        targets=targets,
        dataset=_dataset(flags, text=targets[0].chat),
        points=_points(flags),
        num_prompts=flags.num_prompts,
        seed=flags.seed,
        rounds=flags.rounds,
        processes=flags.processes,
        warmups=flags.num_warmups,
        warmup_cut=flags.warmup_cut_s,
        ready_timeout=flags.ready_check_timeout_sec,
        metrics_url=flags.metrics_url,
        scrape_interval=flags.scrape_interval,
        goodput=Goodput.parse(flags.goodput) if flags.goodput else None,
        search=_search(flags),
        output=_output(flags),
    )
    plan.check()
    return plan


def _targets(flags: argparse.Namespace, endpoint: str) -> list[Target]:
    urls = flags.base_url or [f"http://{flags.host}:{flags.port}"]
    for url in urls:
        if not url.startswith(("http://", "https://")):
            raise InvalidArgumentError(f"base_url {url!r}: begins with http:// or https://", param="base_url")
    models = [flags.served_model_name] if flags.served_model_name else flags.model or [""]
    if len(models) not in (1, len(urls)):
        raise InvalidArgumentError(f"model: {len(models)} names for {len(urls)} servers", param="model")
    if not flags.request_timeout > 0:
        raise InvalidArgumentError(
            f"request_timeout {flags.request_timeout}: above 0", param="request_timeout"
        )
    headers = _pairs("header", flags.header)
    if flags.api_key:
        headers["Authorization"] = f"Bearer {flags.api_key}"
    return [
        Target(
            url, model, endpoint, headers, _body(flags, endpoint), flags.request_timeout, not flags.insecure
        )
        for url, model in zip(urls, models * len(urls) if len(models) == 1 else models, strict=True)
    ]


def _body(flags: argparse.Namespace, endpoint: str) -> dict[str, Any]:
    body = {name: getattr(flags, name) for name in _SAMPLING if getattr(flags, name) is not None}
    if flags.logprobs is not None:
        chat = endpoint.endswith("/chat/completions")
        body |= {"logprobs": True, "top_logprobs": flags.logprobs} if chat else {"logprobs": flags.logprobs}
    return {**body, **(flags.extra_body or {})}


def _dataset(flags: argparse.Namespace, text: bool) -> DatasetOptions:
    prefix = {
        "random": flags.random_prefix_len,
        "prefix_repetition": flags.prefix_repetition_prefix_len,
        "multi_turn": flags.multi_turn_prefix_len,
    }
    return DatasetOptions(
        name=flags.dataset_name,
        path=flags.dataset_path,
        input_len=flags.input_len,
        output_len=flags.output_len,
        range_ratio=flags.random_range_ratio,
        prefix_len=prefix.get(flags.dataset_name, 0),
        num_prefixes=flags.prefix_repetition_num_prefixes,
        zipf=flags.prefix_repetition_zipf,
        turns=flags.multi_turn_turns,
        think_s=flags.multi_turn_think_s,
        max_input_len=flags.max_input_len,
        max_output_len=flags.max_output_len,
        vocab_size=flags.vocab_size,
        # What was answered comes back as text, so what is asked must be text too.
        text=text or flags.dataset_name == "multi_turn",
        oversample=not flags.no_oversample,
        ignore_eos=flags.ignore_eos,
        count_tokens=_counter(flags.tokenizer) if flags.dataset_name == "sharegpt" else estimate_tokens,
    )


def _counter(tokenizer: str | None) -> Callable[[str], int]:
    if tokenizer is None:
        return estimate_tokens
    from octavo import _engine
    from octavo.models import hub
    from octavo.tokenizer import from_folder, from_gguf

    path = hub.resolve(tokenizer)
    loaded = from_gguf(_engine.GgufFile(str(path)).metadata()) if path.is_file() else from_folder(path)
    return lambda text: len(loaded.encode(text, add_special_tokens=False))


def _points(flags: argparse.Namespace) -> list[Traffic]:
    if flags.ramp_up_strategy and (flags.ramp_up_start_rps is None or flags.ramp_up_end_rps is None):
        raise InvalidArgumentError(
            "ramp_up_strategy needs ramp_up_start_rps and ramp_up_end_rps", param="ramp_up_strategy"
        )
    rates = flags.sweep_request_rate or [flags.request_rate]
    if flags.sweep_request_rate and math.isfinite(flags.request_rate):
        raise InvalidArgumentError(
            "request_rate and sweep_request_rate exclude each other", param="request_rate"
        )
    limits = flags.sweep_max_concurrency or [flags.max_concurrency]
    if flags.sweep_max_concurrency and flags.max_concurrency is not None:
        raise InvalidArgumentError(
            "max_concurrency and sweep_max_concurrency exclude each other", param="max_concurrency"
        )
    traffic = Traffic(
        burstiness=flags.burstiness,
        ramp=flags.ramp_up_strategy,
        ramp_start=flags.ramp_up_start_rps or 0.0,
        ramp_end=flags.ramp_up_end_rps or 0.0,
        time_scale=flags.time_scale,
        cancel_share=flags.cancel_share,
        cancel_after=flags.cancel_after,
        slow_share=flags.slow_reader_share,
        slow_rate=flags.slow_reader_rate,
    )
    timed = flags.self_timed
    if timed is None:
        has_times = DatasetOptions(name=flags.dataset_name).timed
        given = flags.ramp_up_strategy or flags.search_rate or any(math.isfinite(rate) for rate in rates)
        timed = has_times and not given
    return [replace(traffic, rate=r, concurrency=c, self_timed=timed) for r in rates for c in limits]


def _search(flags: argparse.Namespace) -> Search | None:
    if not flags.search_rate:
        return None
    return Search(flags.search_start, flags.search_share, flags.search_tolerance, flags.search_trials)


def _output(flags: argparse.Namespace) -> Output:
    try:
        percentiles = [float(q) for q in flags.metric_percentiles.split(",")]
    except ValueError:
        raise InvalidArgumentError(
            f"metric_percentiles {flags.metric_percentiles!r}: numbers with commas",
            param="metric_percentiles",
        ) from None
    save = flags.save_result or flags.append_result
    return Output(
        metrics=[name for name in flags.percentile_metrics.split(",") if name],
        percentiles=percentiles,
        save=save,
        append=flags.append_result,
        detailed=flags.save_detailed,
        path=_path(flags) if save else None,
        plot=Path(flags.plot) if flags.plot else None,
        progress=not flags.disable_tqdm,
        metadata=_pairs("metadata", flags.metadata),
        label=flags.label,
        backend=flags.backend,
        tokenizer=flags.tokenizer,
    )


def _path(flags: argparse.Namespace) -> Path:
    model = "-" + flags.model[0].rsplit("/", 1)[-1] if flags.model else ""
    limit = f"-concurrency{flags.max_concurrency}" if flags.max_concurrency is not None else ""
    rate = (
        f"ramp-up-{flags.ramp_up_strategy}-{flags.ramp_up_start_rps}qps-{flags.ramp_up_end_rps}qps"
        if flags.ramp_up_strategy
        else f"{flags.request_rate}qps"
    )
    name = f"{flags.label or flags.backend}-{rate}{limit}{model}-{datetime.now():%Y%m%d-%H%M%S}.json"
    folder = Path(flags.result_dir or ".")
    folder.mkdir(parents=True, exist_ok=True)
    return folder / (flags.result_filename or name)


def _pairs(flag: str, items: list[str]) -> dict[str, str]:
    pairs = {}
    for item in items:
        key, sign, value = item.partition("=")
        if not sign or not key.strip():
            raise InvalidArgumentError(f"{flag} {item!r}: KEY=VALUE", param=flag)
        pairs[key.strip()] = value.strip()
    return pairs
