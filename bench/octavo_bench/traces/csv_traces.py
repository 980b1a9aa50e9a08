"""Traces as CSV: Azure's LLM inference traces, BurstGPT, plain lists of lengths."""

from __future__ import annotations

import csv
import math
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path

from octavo.errors import InvalidArgumentError
from octavo_bench.traces.request import TraceRequest


@dataclass(frozen=True, slots=True)
class CsvShape:
    """The columns of a shape, by lower-cased name; ``arrival`` may be absent where ``arrival_needed`` is false."""

    arrival: str
    prompt: str
    output: str
    parse_arrival: Callable[[str], float]
    arrival_needed: bool = True
    skip_unanswered: bool = False


def _seconds(text: str) -> float:
    value = float(text)
    if not math.isfinite(value):
        raise ValueError(f"{text!r} is not a finite number of seconds")
    return value


def _date(text: str) -> float:
    """Seconds of a date such as ``2023-11-16 18:15:46.6805900``: more digits than Python's own parser takes."""
    match = re.fullmatch(r"(\d{4}-\d\d-\d\d[ T]\d\d:\d\d:\d\d)(\.\d+)?(Z|[+-]\d\d:?\d\d)?", text.strip())
    if match is None:
        raise ValueError(f"{text!r} is not a date and time")
    whole, fraction, zone = match.groups()
    zone = "+00:00" if zone in (None, "Z") else zone if ":" in zone else f"{zone[:3]}:{zone[3:]}"
    moment = datetime.fromisoformat(whole.replace("T", " ") + zone)
    return moment.astimezone(timezone.utc).timestamp() + float(fraction or 0)


CSV_SHAPES = {
    "azure": CsvShape("timestamp", "contexttokens", "generatedtokens", _date),
    "burstgpt": CsvShape("timestamp", "request tokens", "response tokens", _seconds, skip_unanswered=True),
    "lengths": CsvShape("arrival_s", "prompt_tokens", "output_tokens", _seconds, arrival_needed=False),
}


def _names(header: str | Sequence[str]) -> list[str]:
    cells = next(csv.reader([header])) if isinstance(header, str) else header
    return [cell.strip().lower().lstrip("\ufeff") for cell in cells]


def shape_of_header(line: str) -> str | None:
    """Which shape has this first line."""
    names = _names(line)
    for key, shape in CSV_SHAPES.items():
        needed = {shape.prompt, shape.output} | ({shape.arrival} if shape.arrival_needed else set())
        if needed <= set(names):
            return key
    return None


def token_count(text: str, name: str, least: int = 1) -> int:
    """A length as written, or a ``ValueError`` that says what is wrong with it."""
    try:
        value = int(text)
    except ValueError:
        raise ValueError(f"{name} {text!r} is not a whole number") from None
    if value < least:
        raise ValueError(f"{name} is {value}, at least {least} is needed")
    return value


def read_csv(path: Path, form: str, limit: int | None) -> list[TraceRequest]:
    """The rows of ``path`` in file order; every bad one is an error that names its line."""
    shape = CSV_SHAPES[form]
    requests: list[TraceRequest] = []
    with path.open(newline="", encoding="utf-8-sig", errors="replace") as file:
        rows = csv.reader(line.replace("\0", "\ufffd") for line in file)  # NUL ends the csv module's parse
        names = _names(next(rows, []))
        missing = [name for name in (shape.prompt, shape.output) if name not in names]
        if shape.arrival_needed and shape.arrival not in names:
            missing.insert(0, shape.arrival)
        if missing:
            raise InvalidArgumentError(f"{path}, line 1: no column {missing[0]!r}", param=str(path))
        at = {name: names.index(name) for name in names}
        for row in rows:
            if limit is not None and len(requests) >= limit:
                break
            if not row:
                continue
            try:
                if len(row) < len(names):
                    raise ValueError(f"{len(row)} cells where the header has {len(names)}")
                arrival = shape.parse_arrival(row[at[shape.arrival]]) if shape.arrival in at else 0.0
                output = token_count(row[at[shape.output]], shape.output, 0 if shape.skip_unanswered else 1)
                prompt = token_count(row[at[shape.prompt]], shape.prompt, 0 if not output else 1)
            except ValueError as error:
                raise InvalidArgumentError(
                    f"{path}, line {rows.line_num}: {error}", param=str(path)
                ) from None
            if output:
                requests.append(TraceRequest(arrival, prompt, output))
    return requests
