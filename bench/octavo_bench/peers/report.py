"""The table of a comparison, as text and as JSON."""

from __future__ import annotations

import json
import math
import platform
import statistics
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any

from octavo_bench.peers.rounds import ROWS, Figures


def machine() -> str:
    """The processor and how many CPUs there are."""
    try:
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                name = line.split(":", 1)[1].strip()
                break
        else:
            name = platform.processor()
        count = sum(line.startswith("processor") for line in Path("/proc/cpuinfo").read_text().splitlines())
    except OSError:
        return platform.processor()
    return f"{name}, {count} CPUs"


def _cell(value: float, digits: int = 0) -> str:
    return "-" if math.isnan(value) else f"{value:.{digits}f}"


def text_table(table: Sequence[Figures], ours: Sequence[str]) -> str:
    """Markdown: a line per row, a column per peer, and the ratios of each of ours to the best of the others of its kind
    and of all others."""
    own = [f for f in table if f.peer in ours]
    others = [f for f in table if f.peer not in ours]
    heads = [f.peer for f in table] + [
        f"{f.peer} / {best}" for f in own for best in (f"best {f.kind}", "best of all")
    ]
    lines = ["| | " + " | ".join(heads) + " |", "| --- |" + " --- |" * len(heads)]
    for row in ROWS:
        cells = [_cell(f.median(row.key)) for f in table]
        for f in own:
            alike = [o for o in others if o.kind == f.kind]
            cells += [_cell(_ratio(f, them, row.key), 2) for them in (alike, others)]
        lines.append(f"| {row.title} | " + " | ".join(cells) + " |")
    empty = 2 * len(own)
    lines.append(_extra("TTFT of W1, ms", [1000 * _median(f.ttft) for f in table], 0, empty))
    started = [_median([s.seconds for s in f.started]) for f in table]
    lines.append(_extra("start to first token, s", started, 2, empty))
    lines.append(_extra("resident, MB", [_median(f.resident_mb) for f in table], 0, empty))
    return "\n".join(lines)


def _ratio(own: Figures, others: Sequence[Figures], key: str) -> float:
    figures = [f.median(key) for f in others if not math.isnan(f.median(key))]
    return own.median(key) / max(figures) if figures else math.nan


def _median(values: Sequence[float]) -> float:
    return statistics.median(values) if values else math.nan


def _extra(title: str, values: Sequence[float], digits: int, empty: int) -> str:
    return f"| {title} | " + " | ".join([_cell(v, digits) for v in values] + [""] * empty) + " |"


def write_json(table: Sequence[Figures], path: Path, settings: dict[str, Any]) -> None:
    """Every round's figure, with the settings of the run."""
    document = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "settings": settings,
        "peers": [
            {
                "name": f.peer,
                "kind": f.kind,
                "failure": f.failure,
                "start_s": [s.seconds for s in f.started],
                "ttft_s": f.ttft,
                "resident_mb": f.resident_mb,
                "rows": f.rows,
            }
            for f in table
        ],
    }
    path.write_text(json.dumps(document, indent=1) + "\n")
