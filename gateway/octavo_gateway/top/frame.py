"""One picture of a server: text, no terminal codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from octavo_gateway.protocol.cache import CacheSnapshot, RunningRequest, WaitingRequest
from octavo_gateway.top import block_map

REASONS = {
    "next_step": "enters the next step",
    "no_blocks": "no blocks",
    "token_budget": "token budget of the step is used up",
    "sequence_limit": "sequence limit",
    "prefix_in_flight": "its prefix is being computed",
    "behind": "behind earlier ones",
    "tenant_limit": "sequence limit of its tenant",
    "behind_share": "another tenant's turn",
}
SLOWED = {
    "token_budget": "others take the step's tokens",
    "no_blocks": "no blocks for its next tokens",
    "recomputing": "computed again after a preemption",
    "giving_way": "about to be preempted",
    "grammar": "steps wait for its grammar",
    "grammar_of_another": "steps wait for another's grammar",
    "reader": "its client reads slowly",
}
_BAR = 30
_MIN_MAP_LINES = 4


def frame(now: CacheSnapshot, before: CacheSnapshot | None, where: str, width: int, height: int) -> list[str]:
    """At most `height` lines of `width` characters.

    Args:
        before: an earlier snapshot of the same server; rates are between the two.
        where: the server's address.
    """
    lines = [
        f"{now.model} at {where}",
        "",
        *_pool(now),
        *_prefixes(now),
        *_work(now, before),
        *_slowed(now),
        "",
    ]
    left = height - len(lines)
    queue = _queue(now, max(3, left - _MIN_MAP_LINES - 2))
    lines += [*queue, ""]
    lines += _maps(now, width, height - len(lines))
    return [line[:width] for line in lines[:height]]


def _pool(now: CacheSnapshot) -> list[str]:
    total = max(1, now.total_blocks)
    live, cached = (round(_BAR * n / total) for n in (now.live_blocks, now.cached_blocks))
    bar = ("█" * live + "░" * cached)[:_BAR].ljust(_BAR, "·")
    shares = ", ".join(
        f"{name} {n:,} ({100 * n / total:.0f} %)"
        for name, n in (("live", now.live_blocks), ("cached", now.cached_blocks), ("free", now.free_blocks))
    )
    return [
        f"cache   {bar}  {now.total_blocks:,} blocks of {now.block_size} tokens",
        f"        {shares}, sharing {now.sharing_factor:.2f} x",
    ]


def _prefixes(now: CacheSnapshot) -> list[str]:
    return [
        f"prefix  {now.prefix_tokens_saved:,} of {now.prefix_tokens_queried:,} prompt tokens were in the cache "
        f"({100 * now.prefix_hit_rate:.0f} %)"
    ]


def _work(now: CacheSnapshot, before: CacheSnapshot | None) -> list[str]:
    rates = ""
    if before is not None and now.time > before.time and now.steps >= before.steps:
        seconds = now.time - before.time
        tokens = (now.generation_tokens - before.generation_tokens) / seconds
        steps = (now.steps - before.steps) / seconds
        rates = f", {tokens:,.0f} tokens/s, {steps:,.1f} steps/s"
    return [
        f"work    {len(now.running)} running, {len(now.waiting)} waiting, {now.preemptions:,} preemptions{rates}"
    ]


def _slowed(now: CacheSnapshot) -> list[str]:
    slowed = [r for r in now.running if r.reason != "on_time"]
    return [f"slowed  {_reasons(slowed, SLOWED)}"] if slowed else []


def _queue(now: CacheSnapshot, most: int) -> list[str]:
    if not now.waiting:
        return ["nobody waits"]
    shown = now.waiting if len(now.waiting) <= most - 1 else now.waiting[: most - 2]
    lines = [f"{'request':>9} {'waits':>8} {'prompt':>8} {'seqs':>5}  why", *map(_waiting, shown)]
    rest = now.waiting[len(shown) :]
    if rest:
        lines.append(f"{'':9} and {len(rest)} more, {_reasons(rest, REASONS)}")
    return lines


def _waiting(w: WaitingRequest) -> str:
    why = REASONS[w.reason] + (f" by {w.leader}" if w.leader is not None else "")
    return (
        f"{w.id:>9} {w.waited:>6.1f} s {w.prompt_tokens:>8,} {w.sequences:>5}  {why}"
        f"{' (was preempted)' if w.preempted else ''}"
    )


def _reasons(requests: Sequence[RunningRequest | WaitingRequest], words: Mapping[str, str]) -> str:
    counts = Counter(r.reason for r in requests)
    return ", ".join(f"{n} {words[reason]}" for reason, n in counts.items())


def _maps(now: CacheSnapshot, width: int, lines: int) -> list[str]:
    out: list[str] = []
    each = lines // max(1, len(now.groups)) - 1
    for group in now.groups:
        if each < 1:
            break
        drawn, per_cell = block_map.draw(group.map, width, each)
        kind = f", window of {group.window}" if group.window else ""
        scale = "a block each" if per_cell == 1 else f"{per_cell} blocks each"
        out += [f"{block_map.LEGEND}   ({scale}{kind})", *drawn]
    return out
