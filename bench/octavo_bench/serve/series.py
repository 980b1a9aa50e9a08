"""Several measurements in turn: servers, loads, rounds."""

from __future__ import annotations

from dataclasses import replace

from octavo.errors import OctavoError
from octavo_bench.client import Target
from octavo_bench.datasets.prompts import PromptMaker
from octavo_bench.serve.plan import Plan
from octavo_bench.serve.preflight import check, wait_until_ready
from octavo_bench.serve.run import INTERRUPTED, RunResult, measure
from octavo_bench.serve.schedule import Traffic


async def ready_targets(plan: Plan) -> list[Target]:
    """The plan's servers with their models' names, each of which has answered a small request."""
    targets = []
    options = plan.dataset
    prompt = PromptMaker(plan.seed, text=options.sends_text, vocab_size=options.vocab_size).draw(4)
    for target in plan.targets:
        known = await wait_until_ready(target.root, target.headers, target.verify_tls, plan.ready_timeout)
        if not target.model:
            if not known:
                raise OctavoError(f"{target.root} lists no models: name one with --model", param="model")
            target = replace(target, model=known[0])
        await check(target, known, prompt)
        targets.append(target)
    return targets


async def run_point(plan: Plan, target: Target, traffic: Traffic, number: int) -> RunResult:
    """One measurement; its number decides its prompts, so that no run finds those of another in a cache."""
    return await measure(plan, target, traffic, (plan.seed, number))


async def run_all(plan: Plan, targets: list[Target]) -> list[RunResult]:
    """Each load against each server, round after round, so that a machine that drifts drifts for all of them.

    Within a round all servers are sent the same prompts. An interrupt, or a server that goes away, ends the series.
    """
    results = []
    for number in range(plan.rounds * len(plan.points)):
        for target in targets:
            result = await run_point(plan, target, plan.points[number % len(plan.points)], number)
            results.append(result)
            if len(targets) * len(plan.points) * plan.rounds > 1:
                _say(result)
            if result.stopped is not None:
                return results
    return results


def _say(result: RunResult) -> None:
    from octavo_bench.serve.table import traffic_name

    summary = result.summary
    ended = f", {result.stopped}" if result.stopped and result.stopped != INTERRUPTED else ""
    print(
        f"{result.target.root}  {traffic_name(result.traffic)}: {summary.request_rate:.2f} req/s, "
        f"{summary.output_rate:.1f} tok/s, TTFT p99 {summary.ttft.percentile(99) * 1e3:.1f} ms, "
        f"{summary.failed} failed{ended}",
        flush=True,
    )
