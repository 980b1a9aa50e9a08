"""The highest rate at which enough answers are good: doubled until it fails, then bisected."""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace

from octavo_bench.serve.plan import Search
from octavo_bench.serve.run import INTERRUPTED, RunResult
from octavo_bench.serve.schedule import Traffic


@dataclass(frozen=True, slots=True)
class Found:
    """What a search found.

    Attributes:
        rate: highest rate that met the goal, None where none did.
        failing: lowest rate that did not, None where none failed.
        ended: why it ended: ``found``, ``trials``, ``client-limited``, ``interrupted``, ``stopped`` (the
            server went away).
    """

    rate: float | None
    failing: float | None
    ended: str
    trials: list[RunResult]

    def sentence(self) -> str:
        """The finding in a line."""
        notes = {
            "found": "",
            "trials": "; more --search-trials would narrow it",
            "client-limited": "; beyond it the client, not the server, is the limit",
            "interrupted": "; interrupted",
            "stopped": "; the server went away",
        }
        above = f", {self.failing:.4g} did not" if self.failing is not None else ""
        if self.rate is None:
            return f"no rate met the goal{above}{notes[self.ended]}"
        return f"highest rate that met the goal: {self.rate:.4g} requests/s{above}{notes[self.ended]}"


async def search(
    goal: Search,
    traffic: Traffic,
    run: Callable[[Traffic, int], Awaitable[RunResult]],
    say: Callable[[RunResult, bool], None],
) -> Found:
    """Tries rates. A trial meets the goal when the share of good requests is reached and the run came to its end.

    Args:
        run: measures one traffic, the number of the trial given.
        say: hears of each trial and whether it met the goal.
    """
    passing: float | None = None
    failing: float | None = None
    trials: list[RunResult] = []
    rate = goal.start
    ended = "trials"
    while len(trials) < goal.trials:
        result = await run(replace(traffic, rate=rate), len(trials))
        trials.append(result)
        good = result.stopped is None and (result.good_share or 0.0) >= goal.share
        say(result, good)
        if result.stopped is not None:
            ended = "interrupted" if result.stopped == INTERRUPTED else "stopped"
            break
        if not good and result.limits and not result.summary.failed:
            ended = "client-limited"
            break
        passing, failing = (rate, failing) if good else (passing, rate)
        if passing is not None and failing is not None and failing <= passing * (1 + goal.tolerance):
            ended = "found"
            break
        if failing is None:
            rate *= 2
        elif passing is None:
            rate /= 2
        else:
            rate = math.sqrt(passing * failing)
    return Found(passing, failing, ended, trials)
