"""The study as text and as JSON."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path
from typing import Any

from octavo_bench.memory.cost import StepCost
from octavo_bench.memory.jobs import Job
from octavo_bench.memory.policies import Limits
from octavo_bench.memory.served import Served
from octavo_bench.memory.sharing import Shared
from octavo_bench.memory.simulate import Run
from octavo_bench.peers.report import machine

# Share of the cache that holds tokens: PagedAttention (SOSP '23), figure 2.
_LEAST_WAITED = 0.3  # share of a run in which requests wait
PUBLISHED = {"contiguous max": 20.4, "contiguous pow2": 26.8, "contiguous oracle": 38.2, "paged": 96.3}


@dataclass(frozen=True)
class Study:
    jobs: Sequence[Job]
    source: str  # where the lengths come from
    limits: Limits
    cost: StepCost
    bytes_per_token: int
    runs: Sequence[Run]
    shared: Sequence[Shared]
    served: Sequence[Served]

    @property
    def paged(self) -> Run:
        return next(r for r in self.runs if r.policy == "paged")

    @property
    def expected(self) -> float:
        """L / (L + 7.5) at the mean live length, for blocks of 16: half a block, less half a token, is empty."""
        length = self.paged.live_length
        return length / (length + (self.limits.block_size - 1) / 2)


def _table(rows: Sequence[Sequence[str]], head: int = 1) -> str:
    """Aligned columns, with a rule below the first ``head`` rows."""
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    lines = []
    for row in rows:
        cells = [row[0].ljust(widths[0]), *(c.rjust(w) for c, w in zip(row[1:], widths[1:], strict=True))]
        lines.append("  ".join(cells).rstrip())
    return "\n".join([*lines[:head], "-" * max(map(len, lines)), *lines[head:]])


def _percent(value: float) -> str:
    return f"{100 * value:.1f} %"


def text(study: Study) -> str:
    """Everything that was measured, for a terminal."""
    measured = study.paged.held_of_allocated
    parts = [
        _setting(study),
        _cache_table(study),
        _speed_table(study),
        *_caution(study.runs),
        f"paged: {_percent(measured)} of the allocated cache holds tokens; at a mean live length of "
        f"{study.paged.live_length:.0f} tokens {_percent(study.expected)} are to be expected "
        f"(difference {100 * (measured - study.expected):+.2f} points)",
        _sharing_table(study.shared),
    ]
    if study.served:
        parts.append(_served_table(study.served))
    return "\n\n".join(parts)


def _setting(study: Study) -> str:
    jobs, limits, cost = study.jobs, study.limits, study.cost
    prompts = sum(len(j.prompt) for j in jobs) / len(jobs)
    outputs = sum(j.output for j in jobs) / len(jobs)
    return (
        f"{len(jobs)} requests ({study.source}), mean prompt {prompts:.0f} and answer {outputs:.0f} tokens\n"
        f"cache of {limits.slots:,} tokens ({limits.slots * study.bytes_per_token / 1e9:.2f} GB at "
        f"{study.bytes_per_token:,} bytes), window {limits.max_model_len:,}, blocks of {limits.block_size}, "
        f"at most {limits.max_num_seqs} sequences and {limits.max_num_batched_tokens} tokens per step\n"
        f"a step takes max({1e3 * cost.weights:.2f} ms, {1e6 * cost.token:.1f} us x tokens) + "
        f"{1e6 * cost.position:.3f} us x positions read\n"
        "shares of the cache and sequences: means over the time in which requests wait"
    )


def _cache_table(study: Study) -> str:
    rows = []
    for r in study.runs:
        part = {k: v / r.slots for k, v in r.usage.items()}
        published = PUBLISHED.get(r.policy)
        rows.append(
            (
                r.policy,
                _percent(r.held_of_allocated),
                _percent(r.held),
                f"{published} %" if published else "",
                _percent(part["reserved"]),
                _percent(part["internal"]),
                _percent(part["external"]),
                _percent(part["free"]),
            )
        )
    head = (
        ("", "tokens in", "tokens in", "the same,", "kept for", "internal", "external", ""),
        ("", "allocated", "the cache", "published", "later", "fragm.", "fragm.", "free"),
    )
    return _table([*head, *rows], head=2)


def _speed_table(study: Study) -> str:
    first = study.runs[0]
    rows = [
        (
            r.policy,
            f"{r.sequences:.1f}",
            f"{r.sequences / first.sequences:.2f} x",
            str(r.peak),
            str(r.preemptions),
            f"{r.throughput:,.0f}",
            f"{r.throughput / first.throughput:.2f} x",
            f"{r.requests / r.seconds:.2f}",
            f"{r.sharing:.2f}",
        )
        for r in study.runs
    ]
    head = ("", "sequences", "", "peak", "preempted", "output tok/s", "", "requests/s", "sharing")
    return _table([head, *rows])


def _caution(runs: Sequence[Run]) -> list[str]:
    """What to say where the runs do not compare. Where no request ever waits all means are over whole runs."""
    if not any(r.waited for r in runs) or all(r.waited >= _LEAST_WAITED for r in runs):
        return []
    shares = "; ".join(f"{r.policy}: {_percent(r.waited)}" for r in runs)
    return [
        f"NOT COMPARABLE: somewhere requests wait for less than {_LEAST_WAITED:.0%} of the run, so that means are over "
        f"little\nmore than the time in which the first prompts are computed ({shares}).\n"
        "Take more --requests or a higher --request-rate."
    ]


def _sharing_table(shared: Sequence[Shared]) -> str:
    rows = [
        (
            s.name,
            str(s.sequences),
            f"{s.blocks:.0f}",
            f"{s.unshared:.0f}",
            _percent(s.saved),
            s.published,
            "" if s.worst is None else f"{s.worst:.3f} x",
        )
        for s in shared
    ]
    head = ("", "sequences", "blocks", "unshared", "saved", "published", "of the least")
    return _table([head, *rows])


def _served_table(served: Sequence[Served]) -> str:
    first = served[0]
    rows = [
        (
            s.policy,
            f"{s.sequences:.1f}",
            str(s.peak),
            str(s.preemptions),
            f"{s.throughput:,.0f}",
            f"{s.throughput / first.throughput:.2f} x",
            f"{s.output_tokens / s.cpu_seconds:,.0f}",
        )
        for s in served
    ]
    head = ("", "sequences", "peak", "preempted", "output tok/s", "", "tok per CPU s")
    title = f"really served by {first.model}, {first.requests} requests, cache of {first.slots:,} tokens"
    return f"{title}\n" + _table([head, *rows])


def document(study: Study) -> dict[str, Any]:
    """Everything that was measured, and under which conditions."""
    runs = []
    for r in study.runs:
        figures = {k: v for k, v in asdict(r).items() if k != "timeline"}
        figures.update(
            held=r.held, allocated=r.allocated, held_of_allocated=r.held_of_allocated, throughput=r.throughput
        )
        runs.append(figures)
    return {
        "date": date.today().isoformat(),
        "machine": machine(),
        "source": study.source,
        "limits": {**asdict(study.limits), "bytes_per_token": study.bytes_per_token},
        "step_cost": asdict(study.cost),
        "trace": {
            "requests": len(study.jobs),
            "prompt_tokens": sum(len(j.prompt) for j in study.jobs),
            "output_tokens": sum(j.output for j in study.jobs),
        },
        "published_held_percent": PUBLISHED,
        "paged_expected": study.expected,
        "policies": runs,
        "sharing": [{**asdict(s), "saved": s.saved} for s in study.shared],
        "served": [{**asdict(s), "throughput": s.throughput} for s in study.served],
    }


def write(study: Study, path: Path) -> None:
    path.write_text(json.dumps(document(study), indent=1) + "\n")
