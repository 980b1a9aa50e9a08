"""The shapes of GET /debug/decisions: what the scheduler was told and decided, in integers and words of its own."""

from __future__ import annotations

from typing import TypeAlias

import msgspec

from octavo_gateway.protocol.cache import WaitReason


class _Decision(msgspec.Struct, kw_only=True, tag_field="kind"):
    step: int  # the one in question, or the next


class _OfRequest(_Decision, kw_only=True):
    request: int


class Added(_OfRequest, kw_only=True, tag="add"):
    prompt_tokens: int
    max_new_tokens: int  # of each sequence
    priority: int
    tenant: int
    first_sequence: int  # the others have the numbers behind it
    sequences: int
    prompt_logits: bool
    lockstep: bool  # a row is planned only once the token before it is known
    alone: bool  # nothing else waited, ran or was in flight, and steps had no limit: a replay may start here


class Cancelled(_OfRequest, kw_only=True, tag="cancel"):
    pass


class Committed(_Decision, kw_only=True, tag="commit"):
    """What follows of "forced", "end" and "fault" belongs to it."""


class RolledBack(_Decision, kw_only=True, tag="rollback"):
    """This step and every later one were undone."""


class Limited(_Decision, kw_only=True, tag="limit"):
    step_tokens: int  # 0: no limit but the configuration's
    chunk_tokens: int  # of one prompt


class Forced(_OfRequest, kw_only=True, tag="forced"):
    sequence: int
    tokens: int  # that its grammar appended to the one that was drawn


class Planned(_Decision, kw_only=True, tag="plan"):
    rows: int  # 0: nothing could be planned
    tokens: int
    samples: int
    queue_waits_for: WaitReason


class Admitted(_OfRequest, kw_only=True, tag="admit"):
    cached_tokens: int  # that need no computing
    tokens: int  # in its first step


class Evicted(_OfRequest, kw_only=True, tag="evict"):
    favoured: int  # the request for whose sake it leaves


class Preempted(_OfRequest, kw_only=True, tag="preempt"):
    computed: int  # tokens


class Ended(_OfRequest, kw_only=True, tag="end"):
    sequence: int


class Faulted(_OfRequest, kw_only=True, tag="fault"):
    sequence: int


class Failed(_OfRequest, kw_only=True, tag="fail"):
    """It could make no progress."""


Decision: TypeAlias = (
    Added
    | Cancelled
    | Committed
    | RolledBack
    | Limited
    | Forced
    | Planned
    | Admitted
    | Evicted
    | Preempted
    | Ended
    | Faulted
    | Failed
)


class SchedulerConfig(msgspec.Struct, kw_only=True):
    """The arguments of a scheduler that decides in the same way."""

    groups: list[list[int]]  # of layers that share one kind of cache: [blocks, window (0: all positions)]
    block_size: int
    max_tokens_per_step: int
    max_seqs: int
    max_model_len: int
    prefix_caching: bool
    watermark: float
    depth: int
    max_seqs_per_tenant: int
    ageing_steps: int


class Decisions(msgspec.Struct, kw_only=True):
    object: str = "scheduler_decisions"
    model: str
    config: SchedulerConfig
    decisions: list[Decision]  # the last ones, oldest first
