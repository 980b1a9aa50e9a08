"""The gateway's figures beside their goals, as text and as JSON."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from datetime import date
from pathlib import Path

from octavo_bench.gateway.measure import Cost
from octavo_bench.peers.report import machine

# Goals, on one core.
CHUNK_MICROSECONDS, CHUNKS_PER_CORE, REQUESTS_PER_CORE = 30.0, 20_000.0, 2_500.0


@dataclass(frozen=True, slots=True)
class Figures:
    """One cost per round."""

    streams: int
    connections: int
    chunks: Sequence[Cost]
    requests: Sequence[Cost]


def median(costs: Sequence[Cost]) -> Cost:
    """The round whose CPU time per unit is the median."""
    middle = statistics.median_low([c.microseconds for c in costs])
    return next(c for c in costs if c.microseconds == middle)


def lines(figures: Figures) -> list[str]:
    """A line per figure."""
    chunk, request = median(figures.chunks), median(figures.requests)
    spread = (
        f"{min(c.microseconds for c in figures.chunks):.1f}-{max(c.microseconds for c in figures.chunks):.1f}"
    )
    return [
        f"streamed, {figures.streams} at once: {chunk.microseconds:.1f} us of CPU per chunk ({spread}; goal "
        f"{CHUNK_MICROSECONDS:.0f} or less)",
        f"  {chunk.per_core:,.0f} chunks/s per core (goal {CHUNKS_PER_CORE:,.0f}), {chunk.rate:,.0f} per second "
        "as it went",
        f"not streamed, {figures.connections} connections: {request.microseconds:.0f} us of CPU per request",
        f"  {request.per_core:,.0f} requests/s per core (goal {REQUESTS_PER_CORE:,.0f}), {request.rate:,.0f} per "
        "second as it went",
    ]


def write(figures: Figures, path: Path) -> None:
    document = {
        "date": date.today().isoformat(),
        "machine": machine(),
        **asdict(figures),
        "chunk_microseconds": median(figures.chunks).microseconds,
        "chunks_per_core": median(figures.chunks).per_core,
        "requests_per_core": median(figures.requests).per_core,
        "goals": {
            "chunk_microseconds": CHUNK_MICROSECONDS,
            "chunks_per_core": CHUNKS_PER_CORE,
            "requests_per_core": REQUESTS_PER_CORE,
        },
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
