"""One measurement: a load against a server, with everything that is read beside it."""

from __future__ import annotations

import asyncio
import signal
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

from octavo_bench.client import Load, Record, Summary, Target, summarize
from octavo_bench.client.processes import Client
from octavo_bench.client.summary import steady_window
from octavo_bench.client.watch import Watch, limits
from octavo_bench.datasets import make_shots
from octavo_bench.serve.plan import Plan
from octavo_bench.serve.schedule import Traffic, schedule
from octavo_bench.serve.scrape import Scraper

INTERRUPTED = "interrupted"
BAR_INTERVAL = 0.25


@dataclass(frozen=True, slots=True)
class RunResult:
    """What one measurement gave.

    Attributes:
        records: all requests, those of the warm-up cut included; ``measured`` leaves these out.
        steady: the summary of the stretch of steady load, None where there is none.
        good, good_share: requests that met the goodput limits; the share is None without limits.
        limits: why the client may have set the figures, empty where it has not.
        stopped: why the run ended early, None where it did not.
    """

    target: Target
    traffic: Traffic
    seed: tuple[int, ...]
    records: list[Record]
    measured: list[Record]
    summary: Summary
    steady: Summary | None
    good: int
    good_share: float | None
    watches: list[Watch]
    limits: list[str]
    stopped: str | None
    server: Scraper

    @property
    def failed(self) -> bool:
        """Whether its figures are not those of the whole load."""
        return self.stopped is not None or self.summary.failed > 0


async def measure(plan: Plan, target: Target, traffic: Traffic, seed: tuple[int, ...]) -> RunResult:
    """Runs the plan's load once. An interrupt ends it early and keeps what came."""
    if plan.warmups:
        await _warm_up(plan, target, traffic, (*seed, 1))
    shots = schedule(make_shots(plan.dataset, plan.num_prompts, seed), traffic, seed)
    client = Client(target, Load(shots, traffic.concurrency), plan.processes)
    scraper = Scraper(
        plan.metrics_url or f"{target.root}/metrics", target.headers, target.verify_tls, plan.scrape_interval
    )
    async with scraper, _interruptible(client.stop), _bar(client, len(shots), plan.output.progress):
        outcome = await client.run()
    return assess(plan, target, traffic, seed, outcome.records, outcome.watches, outcome.stopped, scraper)


def assess(
    plan: Plan,
    target: Target,
    traffic: Traffic,
    seed: tuple[int, ...],
    records: list[Record],
    watches: list[Watch],
    stopped: str | None,
    scraper: Scraper,
) -> RunResult:
    """Draws the figures from what a run left."""
    measured = [
        r for r in records if (r.due if traffic.scheduled else r.dispatched or 0.0) >= plan.warmup_cut
    ]
    summary = summarize(measured)
    good, share = plan.goodput.count(measured) if plan.goodput else (0, None)
    window = steady_window(records, plan.warmup_cut)
    delay = (
        summary.dispatch_delay.percentile(99) if traffic.scheduled and len(summary.dispatch_delay) else None
    )
    return RunResult(
        target=target,
        traffic=traffic,
        seed=seed,
        records=records,
        measured=measured,
        summary=summary,
        steady=summarize(records, window) if window else None,
        good=good,
        good_share=share,
        watches=watches,
        limits=limits(watches, delay),
        stopped=stopped,
        server=scraper,
    )


async def _warm_up(plan: Plan, target: Target, traffic: Traffic, seed: tuple[int, ...]) -> None:
    shots = [replace(shot, due=0.0) for shot in make_shots(plan.dataset, plan.warmups, seed)]
    client = Client(target, Load(shots, traffic.concurrency or 1))
    async with _interruptible(client.stop):
        outcome = await client.run()
    if outcome.stopped == INTERRUPTED:
        raise KeyboardInterrupt


@asynccontextmanager
async def _interruptible(stop: Callable[[str], None]) -> AsyncIterator[None]:
    loop = asyncio.get_running_loop()
    try:
        loop.add_signal_handler(signal.SIGINT, stop, INTERRUPTED)
    except (RuntimeError, ValueError):  # not the main thread
        yield
        return
    try:
        yield
    finally:
        loop.remove_signal_handler(signal.SIGINT)


@asynccontextmanager
async def _bar(client: Client, total: int, shown: bool) -> AsyncIterator[None]:
    """A progress bar on stderr."""
    if not shown:
        yield
        return
    from tqdm import tqdm

    bar: Any = tqdm(total=total, unit="req", dynamic_ncols=True, leave=False)
    start = time.perf_counter()

    def show() -> None:
        progress = client.progress
        bar.n = progress.done
        rate = progress.tokens / max(time.perf_counter() - start, 1e-9)
        bar.set_postfix_str(f"{rate:.0f} tok/s, {progress.failed} failed", refresh=False)
        bar.refresh()

    async def refresh() -> None:
        while True:
            await asyncio.sleep(BAR_INTERVAL)
            show()

    task = asyncio.create_task(refresh())
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait({task})
        show()
        bar.close()
