"""The table and the JSON of ``octavo bench step``."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any

from octavo_bench.peers.report import machine
from octavo_bench.step.measure import Part


def table(part: Part, least: float = 0.001) -> str:
    """The phases of one part, largest first, down to a share of ``least``."""
    total = part.seconds * 1e6 / max(1, part.steps)
    lines = [
        f"\n{part.name}: {part.steps} steps of {total:.0f} µs, host outside kernels {part.host_us:.0f} µs a step",
        f"  {'phase':34} {'a step':>13} {'share':>8} {'runs a step':>13}",
    ]
    for name, (_, count) in sorted(part.phases.items(), key=lambda item: -item[1][0]):
        us = part.per_step_us(name)
        if us >= least * total:
            lines.append(
                f"  {name:34} {us:10.1f} µs {100 * us / total:6.1f} %   {count / max(1, part.steps):6.1f} x"
            )
    return "\n".join(lines)


def document(parts: Sequence[Part], info: Mapping[str, Any], model: str) -> dict[str, Any]:
    """What ``--out`` writes."""
    return {
        "date": date.today().isoformat(),
        "machine": machine(),
        "model": model,
        "isa": info["isa"],
        "threads": info["threads"],
        "parts": [
            {
                "name": part.name,
                "steps": part.steps,
                "seconds": part.seconds,
                "host_us": part.host_us,
                "phases": {
                    name: {"us": part.per_step_us(name), "runs": count / max(1, part.steps)}
                    for name, (_, count) in part.phases.items()
                },
            }
            for part in parts
        ],
    }


def write(parts: Sequence[Part], info: Mapping[str, Any], model: str, path: Path) -> None:
    path.write_text(json.dumps(document(parts, info, model), indent=1) + "\n")
