"""What a part of the check says: one JSON line for each thing checked or measured, as soon as it is known."""

from __future__ import annotations

import json
from typing import Any


def check(name: str, ok: bool, error: float | None = None, limit: float | None = None) -> None:
    """A result that is right or wrong; ``error`` and its ``limit`` say by how much."""
    _emit({"kind": "check", "name": name, "ok": bool(ok), "value": error, "goal": limit, "unit": "error"})


def figure(name: str, value: float, unit: str, goal: float | None = None, *, at_most: bool = False) -> None:
    """A measured figure and what it should reach."""
    met = None if goal is None else (value <= goal if at_most else value >= goal)
    _emit({"kind": "figure", "name": name, "ok": met, "value": value, "goal": goal, "unit": unit})


def _emit(line: dict[str, Any]) -> None:
    print(json.dumps(line), flush=True)


def table(lines: list[dict[str, Any]]) -> str:
    """The lines for people."""
    rows = [("", "part", "what", "value", "unit", "goal")]
    for line in lines:
        mark = {True: "ok", False: "WRONG" if line["kind"] == "check" else "below", None: ""}[line["ok"]]
        rows.append(
            (mark, line["part"], line["name"], _short(line["value"]), line["unit"], _short(line["goal"]))
        )
    widths = [max(len(row[i]) for row in rows) for i in range(len(rows[0]))]
    return "\n".join(
        "  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows
    )


def _short(value: float | None) -> str:
    return "" if value is None else f"{value:.4g}"
