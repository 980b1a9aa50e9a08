"""``octavo bench serve``."""

from __future__ import annotations

import argparse
import sys
from functools import partial
from typing import TYPE_CHECKING

from octavo_bench.serve.flags import configure

if TYPE_CHECKING:
    from octavo_bench.serve.plan import Plan
    from octavo_bench.serve.run import RunResult

__all__ = ["configure", "run"]

FAILED, INTERRUPTED = 1, 130


def run(flags: argparse.Namespace) -> int:
    """0: every request was answered. 1: some were not, or the run ended early. 130: interrupted."""
    from octavo_bench import precise_loop
    from octavo_bench.plotting import need_matplotlib
    from octavo_bench.serve.from_flags import make_plan

    plan = make_plan(flags)
    if plan.output.plot is not None:
        need_matplotlib("--plot")
    return precise_loop.run(_run(plan))


async def _run(plan: Plan) -> int:
    from octavo_bench.serve.search import search
    from octavo_bench.serve.series import ready_targets, run_all, run_point
    from octavo_bench.serve.table import many_runs, traffic_name

    targets = await ready_targets(plan)
    if plan.search is None:
        return _finish(plan, await run_all(plan, targets))
    results: list[RunResult] = []
    code = 0

    def say(result: RunResult, good: bool) -> None:
        share = (result.good_share or 0.0) * 100
        print(
            f"{traffic_name(result.traffic)}: {share:.1f} % good, {'met' if good else 'not met'}", flush=True
        )

    for target in targets:
        found = await search(plan.search, plan.points[0], partial(run_point, plan, target), say)
        print(f"{target.root}: {found.sentence()}", flush=True)
        results += found.trials
        if found.ended == "interrupted":
            code = INTERRUPTED
            break
        if found.rate is None or found.ended == "stopped":
            code = FAILED
    _keep(plan, results)
    print(many_runs(results))
    return code


def _finish(plan: Plan, results: list[RunResult]) -> int:
    from octavo_bench.serve import run as running
    from octavo_bench.serve.table import many_runs, one_run

    _keep(plan, results)
    print(one_run(plan, results[0]) if len(results) == 1 else many_runs(results))
    for result in results:
        if result.stopped is not None:
            print(f"octavo: partial results: {result.target.root}: {result.stopped}", file=sys.stderr)
        elif result.summary.failed:
            first = next(r.error for r in result.measured if r.failure)
            count = f"{result.summary.failed} of {result.summary.requests} requests failed"
            print(f"octavo: {result.target.root}: {count}; the first: {first}", file=sys.stderr)
    if any(result.stopped == running.INTERRUPTED for result in results):
        return INTERRUPTED
    return FAILED if any(result.failed for result in results) else 0


def _keep(plan: Plan, results: list[RunResult]) -> None:
    """Writes the files: first of all, since who reads the table may have gone."""
    from octavo_bench.serve import plots
    from octavo_bench.serve.document import document, write

    if plan.output.path is not None:
        write(plan.output.path, [document(plan, result) for result in results], plan.output.append)
        print(f"written: {plan.output.path}")
    if plan.output.plot is not None:
        plots.draw(results, plan.output.plot)
        print(f"written: {plan.output.plot}")
