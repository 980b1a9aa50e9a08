"""The dashboard asks for metrics that the server has, and for all that it has but the layout of the cache."""

from __future__ import annotations

import json
import re
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families
from scripted import Script, ScriptedEngine, spoken
from serving import run, serving

DASHBOARD = Path(__file__).resolve().parents[2] / "docs" / "grafana" / "octavo.json"
METRIC = re.compile(r"\b(?:vllm|octavo):\w+")
LABEL = re.compile(r"(\w+)(?==|!=)|by \(([\w, ]+)\)")


def test_every_metric_and_label_of_the_dashboard_is_exposed() -> None:
    async def scenario() -> str:
        async with serving(ScriptedEngine(Script(steps=spoken("four")))) as client:
            await client.post("/v1/chat/completions", b"{}")
            await client.chat()
            return (await client.get("/metrics"))[2]

    families = list(text_string_to_metric_families(run(scenario())))
    labels = {s.name: set(s.labels) for f in families for s in f.samples}
    dashboard = json.loads(DASHBOARD.read_text())
    queries = [t["expr"] for panel in dashboard["panels"] for t in panel["targets"]]
    queries += [v["query"]["query"] for v in dashboard["templating"]["list"] if v["type"] == "query"]
    asked = set()
    for query in queries:
        names = set(METRIC.findall(query))
        assert names, query
        wanted = {w.strip() for pair in LABEL.findall(query) for part in pair for w in part.split(",")} - {""}
        for name in names:
            assert name in labels, f"{name} of {query!r} is not in /metrics"
            assert wanted <= labels[name], f"{query!r} wants labels {wanted}, {name} has {labels[name]}"
        asked |= names
    unused = [f.name for f in families if not any(s.name in asked for s in f.samples)]
    assert unused == ["vllm:cache_config_info"]
