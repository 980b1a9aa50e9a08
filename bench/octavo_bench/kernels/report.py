"""Figures as a table and as JSON, and a comparison with an earlier run by share of the ceiling."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path

from octavo.errors import InvalidArgumentError
from octavo_bench.kernels.timing import Figure
from octavo_bench.peers.report import machine

BASELINES = Path(__file__).parents[2] / "baselines"  # of a checkout
TOLERANCE = 0.10  # a share that fell by more than this is a regression


def line(f: Figure) -> str:
    """One row of the table."""
    return f"{f.kernel:28} {f.shape:20} {f.rate:9.1f} {f.unit:8} {100 * f.share:6.1f} %   error {f.error:.1e}"


def write(
    figures: Sequence[Figure], ceilings: Mapping[str, float], threads: int, isa: str, path: Path
) -> None:
    """Writes what :func:`regressions` reads."""
    document = {
        "date": date.today().isoformat(),
        "machine": machine(),
        "threads": threads,
        "isa": isa,
        "ceilings": dict(ceilings),
        "kernels": {f.key: {"rate": f.rate, "share": f.share, "error": f.error} for f in figures},
    }
    path.write_text(json.dumps(document, indent=1) + "\n")


def baseline(isa: str, threads: int) -> Path:
    """The committed figures of an instruction set and a number of threads."""
    path = BASELINES / f"{isa}-{threads}.json"
    if not path.is_file():
        raise InvalidArgumentError(
            f"there are no committed figures for {isa} with {threads} threads: write {path} with --out",
            param="baseline",
        )
    return path


def regressions(figures: Sequence[Figure], path: Path) -> list[str]:
    """A line for each kernel whose share of the ceiling is more than 10 % below the one in ``path``."""
    before = json.loads(path.read_text())["kernels"]
    return [
        f"{f.key}: {100 * f.share:.1f} % of the ceiling, was {100 * before[f.key]['share']:.1f} %"
        for f in figures
        if f.key in before and f.share < before[f.key]["share"] * (1 - TOLERANCE)
    ]
