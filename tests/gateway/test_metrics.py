"""The metric names are a promise to dashboards, their labels one to users."""

from __future__ import annotations

from prometheus_client.parser import text_string_to_metric_families
from scripted import Script, ScriptedEngine, spoken
from serving import run, serving

BASE = {"model_name", "engine"}
GOLDEN = {
    "vllm:num_requests_running": ("gauge", BASE),
    "vllm:num_requests_waiting": ("gauge", BASE),
    "vllm:kv_cache_usage_perc": ("gauge", BASE),
    "vllm:cache_config_info": ("gauge", BASE | {"block_size", "num_blocks"}),
    "vllm:prompt_tokens": ("counter", BASE),
    "vllm:generation_tokens": ("counter", BASE),
    "vllm:prefix_cache_queries": ("counter", BASE),
    "vllm:prefix_cache_hits": ("counter", BASE),
    "vllm:num_preemptions": ("counter", BASE),
    "vllm:request_success": ("counter", BASE | {"finished_reason"}),
    "vllm:time_to_first_token_seconds": ("histogram", BASE),
    "vllm:inter_token_latency_seconds": ("histogram", BASE),
    "vllm:e2e_request_latency_seconds": ("histogram", BASE),
    "vllm:request_queue_time_seconds": ("histogram", BASE),
    "vllm:request_prefill_time_seconds": ("histogram", BASE),
    "vllm:request_decode_time_seconds": ("histogram", BASE),
    "vllm:request_prompt_tokens": ("histogram", BASE),
    "vllm:request_generation_tokens": ("histogram", BASE),
    "vllm:iteration_tokens_total": ("histogram", BASE),
    "octavo:kv_blocks_live": ("gauge", BASE),
    "octavo:kv_blocks_cached": ("gauge", BASE),
    "octavo:kv_blocks_free": ("gauge", BASE),
    "octavo:kv_block_references": ("gauge", BASE),
    "octavo:queue_waits_for": ("gauge", BASE | {"reason"}),
    "octavo:engine_steps": ("counter", BASE),
    "octavo:step_tokens": ("counter", BASE),
    "octavo:failed_steps": ("counter", BASE),
    "octavo:shrunk_steps": ("counter", BASE),
    "octavo:non_finite_rows": ("counter", BASE),
    "octavo:requests_refused": ("counter", BASE | {"status"}),
}


async def scrape(client) -> dict:  # type: ignore[no-untyped-def]
    status, headers, text = await client.get("/metrics")
    assert status == 200 and headers["Content-Type"].startswith("text/plain; version=0.0.4")
    return {family.name: family for family in text_string_to_metric_families(text)}


def test_names_types_and_labels() -> None:
    """Behaviours 94 and 99."""

    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("four")))) as client:
            secret = "alice@example.org"
            await client.post("/v1/chat/completions", b"{}", headers={"X-Request-Id": secret})
            await client.chat(user=secret, metadata={"k": secret}, cache_salt=secret, model=secret)
            await client.chat(user=secret, stream=True)
            families = await scrape(client)
            _, _, text = await client.get("/metrics")
        assert secret not in text
        shown = {
            name: (f.type, {label for s in f.samples for label in s.labels} - {"le"})
            for name, f in families.items()
        }
        assert shown == GOLDEN

    run(scenario())


def test_blocks_sum_to_the_pool() -> None:
    """Behaviour 86."""

    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("four")))) as client:
            families = await scrape(client)
        values = [
            families[f"octavo:kv_blocks_{kind}"].samples[0].value for kind in ("live", "cached", "free")
        ]
        assert sum(values) == 64

    run(scenario())


def test_tokens_per_step_are_the_engines_own_count() -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine()) as client:
            samples = (await scrape(client))["vllm:iteration_tokens_total"].samples
        buckets = {s.labels["le"]: s.value for s in samples if s.name.endswith("_bucket")}
        assert buckets == {"1.0": 0, "2.0": 0, "4.0": 1, "8.0": 3, "+Inf": 3}
        assert next(s.value for s in samples if s.name.endswith("_sum")) == 15

    run(scenario())


def test_requests_are_observed_once() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(Script(steps=spoken("four"), step_seconds=0.02))
        async with serving(engine) as client:
            await client.chat()
            await client.chat(stream=True)
            await client.chat(max_tokens=2)
            families = await scrape(client)

        def value(family: str, sample: str, **labels: str) -> float:
            (found,) = [
                s.value
                for s in families[family].samples
                if s.name == sample and labels.items() <= s.labels.items()
            ]
            return found

        success = "vllm:request_success"
        assert value(success, success + "_total", finished_reason="stop") == 2
        assert value(success, success + "_total", finished_reason="length") == 1
        assert value(success, success + "_total", finished_reason="error") == 0
        for name in (
            "time_to_first_token_seconds",
            "e2e_request_latency_seconds",
            "request_queue_time_seconds",
            "request_prefill_time_seconds",
            "request_decode_time_seconds",
        ):
            assert value(f"vllm:{name}", f"vllm:{name}_count") == 3
        tokens = "vllm:request_generation_tokens"
        assert (value(tokens, tokens + "_count"), value(tokens, tokens + "_sum")) == (3, 4 + 4 + 2)
        gaps = "vllm:inter_token_latency_seconds"
        assert value(gaps, gaps + "_count") == 3 + 3 + 1
        assert 0.02 * 7 <= value(gaps, gaps + "_sum") < 1.0
        prompt = "vllm:request_prompt_tokens"
        assert value(prompt, prompt + "_sum") == 3 * len(b"<user>Hi<assistant>")

    run(scenario())
