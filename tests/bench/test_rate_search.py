"""The search for the highest rate, against servers whose limit is known."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from octavo_bench.client import Record, Target
from octavo_bench.client.watch import Watch
from octavo_bench.datasets import DatasetOptions
from octavo_bench.serve.goodput import Goodput
from octavo_bench.serve.plan import Plan, Search
from octavo_bench.serve.run import INTERRUPTED, RunResult, assess
from octavo_bench.serve.schedule import Traffic
from octavo_bench.serve.scrape import Scraper
from octavo_bench.serve.search import Found, search

PLAN = Plan([], DatasetOptions(), [Traffic()], goodput=Goodput({"ttft": 0.1}))


def served(traffic: Traffic, limit: float, *, busy: bool = False, stopped: str | None = None) -> RunResult:
    """What a server shows that answers in time up to ``limit`` requests per second, and half of them beyond."""
    records = []
    for i in range(10):
        record = Record(due=0.0, released=0.0, dispatched=0.0, finished=1.0, output_tokens=1)
        record.chunks.append(0.05 if traffic.rate <= limit or i % 2 else 1.0)
        records.append(record)
    watch = Watch(0.5 if busy else 0.0, 0.5, 0.1, 0.1, 1.0)
    scraper = Scraper("", {}, True, 0)
    return assess(PLAN, Target("http://x", "m"), traffic, (0,), records, [watch], stopped, scraper)


def find(limit: float, goal: Search, **kind: object) -> tuple[Found, list[float]]:
    rates = []

    async def run(traffic: Traffic, number: int) -> RunResult:
        assert number == len(rates)
        rates.append(traffic.rate)
        return served(traffic, limit, **kind)  # type: ignore[arg-type]

    return asyncio.run(search(goal, Traffic(), run, lambda result, good: None)), rates


@pytest.mark.parametrize("limit", [0.013, 0.9, 1.0, 7.3, 83.0, 4000.0])
def test_the_limit_is_found_within_the_tolerance(limit: float) -> None:
    found, rates = find(limit, Search(start=1.0, tolerance=0.05, trials=40))
    assert found.rate is not None and found.failing is not None and found.ended == "found"
    assert found.rate <= limit < found.failing <= found.rate * 1.05
    assert len(rates) == len(set(rates)) == len(found.trials) < 25


def test_it_ends_with_its_trials_its_client_or_an_interrupt() -> None:
    found, rates = find(1e9, Search(start=2.0, trials=4))
    assert (found.rate, found.failing, found.ended) == (16.0, None, "trials") and rates == [2, 4, 8, 16]
    found, _ = find(10.0, Search(start=2.0), busy=True)
    assert (found.rate, found.ended) == (8.0, "client-limited")
    found, rates = find(10.0, Search(start=2.0), stopped=INTERRUPTED)
    assert (found.rate, found.ended, len(rates)) == (None, "interrupted", 1)
    found, rates = find(10.0, Search(start=2.0), stopped="the server went away: connect")
    assert (found.ended, len(rates)) == ("stopped", 1)
    assert "no rate met the goal" in replace(found, ended="trials").sentence()


def test_the_share_decides() -> None:
    assert find(1.0, Search(start=2.0, share=0.5, trials=2))[0].rate == 4.0
    assert find(1.0, Search(start=2.0, share=0.51, trials=2))[0].rate == 1.0
