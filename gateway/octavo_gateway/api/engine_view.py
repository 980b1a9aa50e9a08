"""The routes below /debug: what the engine holds and does, in the API's shapes."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from octavo.errors import OctavoError
from octavo_gateway.api.context import ApiContext
from octavo_gateway.protocol.cache import (
    CacheAudit,
    CacheGroup,
    CacheSnapshot,
    RunningRequest,
    WaitingRequest,
)
from octavo_gateway.protocol.decisions import Decision, Decisions, SchedulerConfig
from octavo_gateway.protocol.errors import from_engine

_BEHIND = 4  # deltas; so many wait for a reader now and then without its being slow


async def cache_snapshot(context: ApiContext, unread: Mapping[int, int]) -> CacheSnapshot:
    """As of now, between two steps: it waits for the step under way.

    Args:
        unread: by the engine's number for a request, how many deltas wait for its reader.
    """
    try:
        seen = await context.engine.snapshot()
    except OctavoError as e:  # the engine has been shut down
        raise from_engine(e.code, e.param, str(e)) from None
    stats = seen["stats"]
    live, queried, saved = stats["live_blocks"], stats["prefix_queries"], stats["prefix_hits"]
    return CacheSnapshot(
        model=context.model_name,
        time=seen["time"],
        block_size=seen["block_size"],
        total_blocks=stats["total_blocks"],
        free_blocks=stats["free_blocks"],
        cached_blocks=stats["cached_blocks"],
        live_blocks=live,
        sharing_factor=stats["table_entries"] / live if live else 1.0,
        prefix_tokens_queried=queried,
        prefix_tokens_saved=saved,
        prefix_hit_rate=saved / queried if queried else 0.0,
        preemptions=stats["preemptions"],
        steps=stats["steps"],
        prompt_tokens=stats["prompt_tokens"],
        generation_tokens=stats["generation_tokens"],
        groups=msgspec.convert(seen["groups"], list[CacheGroup]),
        running=[_running(r, unread.get(r["id"], 0)) for r in seen["running"]],
        waiting=msgspec.convert(seen["waiting"], list[WaitingRequest]),
    )


def _running(seen: Mapping[str, Any], unread: int) -> RunningRequest:
    """What holds the request itself comes before its reader, who only delays what it is told."""
    running = msgspec.convert({**seen, "unread": unread}, RunningRequest)
    if running.reason == "on_time" and unread > _BEHIND:
        running.reason = "reader"
    return running


def scheduler_decisions(context: ApiContext) -> Decisions:
    """The last ones, also while a step hangs: it waits for none."""
    try:
        config, decisions = context.engine.scheduler_config(), context.engine.decisions()
    except OctavoError as e:
        raise from_engine(e.code, e.param, str(e)) from None
    return Decisions(
        model=context.model_name,
        config=msgspec.convert(config, SchedulerConfig),
        decisions=msgspec.convert(decisions, list[Decision]),
    )


async def cache_audit(context: ApiContext) -> CacheAudit:
    """As of now, between two steps. Raises ApiError that says what does not add up."""
    try:
        await context.engine.audit()
    except OctavoError as e:
        raise from_engine(e.code, e.param, str(e)) from None
    stats = context.engine.stats()
    return CacheAudit(
        model=context.model_name,
        steps=stats["steps"],
        preemptions=stats["preemptions"],
        total_blocks=stats["total_blocks"],
        live_blocks=stats["live_blocks"],
    )
