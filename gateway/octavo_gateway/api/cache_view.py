"""GET /debug/cache and /debug/audit: the engine's snapshot in the API's shape, and whether its books balance."""

from __future__ import annotations

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
from octavo_gateway.protocol.errors import from_engine


async def cache_snapshot(context: ApiContext) -> CacheSnapshot:
    """As of now, between two steps: it waits for the step under way."""
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
        running=msgspec.convert(seen["running"], list[RunningRequest]),
        waiting=msgspec.convert(seen["waiting"], list[WaitingRequest]),
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
