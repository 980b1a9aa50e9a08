"""The shapes of GET /debug/cache and /debug/audit: what the cache holds, who waits. No token of a prompt is there."""

from __future__ import annotations

from typing import Literal

import msgspec

FREE, CACHED = 0, -1  # in a block map; a larger number is how many table entries hold the block

WaitReason = Literal[
    "next_step",
    "no_blocks",
    "token_budget",
    "sequence_limit",
    "prefix_in_flight",
    "behind",
    "tenant_limit",
    "behind_share",
]
RunReason = Literal[
    "on_time",
    "token_budget",
    "no_blocks",
    "recomputing",
    "giving_way",
    "grammar",
    "grammar_of_another",
    "reader",
]


class CacheGroup(msgspec.Struct, kw_only=True):
    """The blocks of the layers that share one kind of cache."""

    num_blocks: int
    window: int  # positions that are kept; 0: all
    free_blocks: int
    cached_blocks: int
    live_blocks: int
    table_entries: int  # of all sequences: the live blocks that there would be if nobody shared
    table_tokens: int  # positions that these tables cover
    live_tokens: int  # slots of live blocks that hold a token
    map: list[list[int]]  # by block id, as runs: [FREE, CACHED or holders, blocks]


class RunningRequest(msgspec.Struct, kw_only=True):
    id: int
    prompt_tokens: int
    sequences: int
    tenant: int
    priority: int
    tokens: int  # of all its sequences, each with the prompt
    computed: int  # of them
    blocks: int  # table entries
    preempted: bool  # it was, and runs again
    unread: int  # deltas that wait for its reader
    reason: RunReason  # what slows it


class WaitingRequest(msgspec.Struct, kw_only=True):
    id: int
    prompt_tokens: int
    sequences: int
    tenant: int
    priority: int
    preempted: bool
    reason: WaitReason
    leader: int | None  # the running request that computes the same prefix
    waited: float  # seconds


class CacheSnapshot(msgspec.Struct, kw_only=True):
    object: str = "cache_snapshot"
    model: str
    time: float  # seconds on the server's monotonic clock
    block_size: int
    total_blocks: int
    free_blocks: int
    cached_blocks: int
    live_blocks: int
    sharing_factor: float  # table entries per live block
    prefix_tokens_queried: int
    prefix_tokens_saved: int  # of them found in the cache
    prefix_hit_rate: float
    preemptions: int
    steps: int
    prompt_tokens: int
    generation_tokens: int
    groups: list[CacheGroup]
    running: list[RunningRequest]
    waiting: list[WaitingRequest]


class CacheAudit(msgspec.Struct, kw_only=True):
    """Every block, table and index entry was counted, and all of it adds up; otherwise the answer is an error."""

    object: str = "cache_audit"
    model: str
    steps: int
    preemptions: int
    total_blocks: int
    live_blocks: int
