"""Plays a dump of decisions to a scheduler of its own: what came in, and nothing that was decided."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from octavo._engine import Scheduler

INPUTS = ("add", "cancel", "commit", "rollback", "limit")


def prompt_of(request: int, length: int) -> list[int]:
    """Nobody else's begins with the same token, so that nothing depends on what was cached."""
    return [request] + [0] * (length - 1)


def from_a_start(dump: Sequence[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The part of a dump that can be replayed: from the earliest request that found nothing else there."""
    start = next(i for i, event in enumerate(dump) if event["kind"] == "add" and event["alone"])
    return list(dump[start:])


def counted_from(dump: Sequence[Mapping[str, Any]], first_step: int) -> list[dict[str, Any]]:
    """The dump as if the first step in it had been this one."""
    shift = first_step - dump[0]["step"]
    return [{**event, "step": event["step"] + shift} for event in dump]


def replay(dump: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What a scheduler with this configuration notes that is told the same."""
    scheduler = Scheduler(**config)
    plans: dict[int, dict[str, Any]] = {}
    for at, event in enumerate(dump):
        if event["kind"] == "add":
            first = event["first_sequence"]
            scheduler.add(
                event["request"],
                list(range(first, first + event["sequences"])),
                prompt_of(event["request"], event["prompt_tokens"]),
                priority=event["priority"],
                tenant=event["tenant"],
                max_new_tokens=event["max_new_tokens"],
                prompt_logits=event["prompt_logits"],
                lockstep=event["lockstep"],
            )
        elif event["kind"] == "cancel":
            scheduler.cancel(event["request"])
        elif event["kind"] == "limit":
            scheduler.limit_steps(event["step_tokens"], event["chunk_tokens"])
        elif event["kind"] == "rollback":
            scheduler.rollback(event["step"])
        elif event["kind"] == "plan":
            plan = scheduler.plan()
            assert (plan is None) == (event["rows"] == 0)
            if plan is not None:
                plans[plan["step"]] = plan
        elif event["kind"] == "commit":
            _commit(scheduler, plans[event["step"]], dump[at + 1 :])
    return list(scheduler.decisions())


def _commit(scheduler: Scheduler, plan: Mapping[str, Any], later: Sequence[Mapping[str, Any]]) -> None:
    ended, faults, forced = set(), [], {}
    for event in later:
        if event["kind"] in (*INPUTS, "plan"):
            break
        if event["kind"] == "end":
            ended.add(event["sequence"])
        elif event["kind"] == "fault":
            faults.append(event["sequence"])
        elif event["kind"] == "forced":
            forced[event["sequence"]] = event["tokens"]
    outcomes = [
        (plan["rows"][row]["seq"], state, [state] * (1 + forced.get(state, 0)), state in ended)
        for row, _, state, _ in plan["samples"]
    ]
    scheduler.commit(plan["step"], outcomes, faults)
