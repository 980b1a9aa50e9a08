"""Reads a trace file: which of the published shapes it has is seen from its first line."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from octavo.errors import InvalidArgumentError
from octavo_bench.traces.csv_traces import CSV_SHAPES, read_csv, shape_of_header
from octavo_bench.traces.json_traces import read_jsonl
from octavo_bench.traces.request import TraceRequest
from octavo_bench.traces.sharegpt import read_sharegpt

FORMATS = ("auto", "azure", "burstgpt", "lengths", "mooncake", "sharegpt")

# Characters of English text per token of a large vocabulary, where nothing better is at hand.
CHARACTERS_PER_TOKEN = 4


def estimate_tokens(text: str) -> int:
    """About how many tokens a text has, without a tokenizer."""
    return max(1, round(len(text) / CHARACTERS_PER_TOKEN))


def read_trace(
    path: str | Path,
    form: str = "auto",
    *,
    limit: int | None = None,
    count_tokens: Callable[[str], int] = estimate_tokens,
) -> list[TraceRequest]:
    """The requests of a trace in order of arrival.

    Args:
        path: a file in one of these shapes. ``azure``: CSV with TIMESTAMP, ContextTokens, GeneratedTokens.
            ``burstgpt``: CSV with Timestamp, Request tokens, Response tokens (requests without a response are left
            out). ``mooncake``: JSON lines with timestamp (ms), input_length, output_length, hash_ids. ``sharegpt``:
            a JSON list, or JSON lines, of conversations. ``lengths``: CSV or JSON lines with prompt_tokens,
            output_tokens and, if wanted, arrival_s.
        form: the shape; ``auto`` looks at the file.
        limit: stop after so many requests.
        count_tokens: length of a text; used for ShareGPT alone, the other shapes carry lengths.

    Raises:
        InvalidArgumentError: the file is absent or empty, its shape is none of these, or a line is not as it should
            be; the message names the line.
    """
    path = Path(path)
    if form not in FORMATS:
        raise InvalidArgumentError(f"trace format {form!r}: there are {', '.join(FORMATS)}", param="format")
    if form == "auto":
        form = _guess(path)
    if form == "sharegpt":
        requests = read_sharegpt(path, limit, count_tokens)
    elif form in CSV_SHAPES and not _is_json(path):
        requests = read_csv(path, form, limit)
    else:
        requests = read_jsonl(path, form, limit)
    if not requests:
        raise InvalidArgumentError(f"{path} holds no requests", param=str(path))
    requests.sort(key=lambda request: request.arrival_s)
    start = requests[0].arrival_s
    if not start:
        return requests
    return [
        TraceRequest(r.arrival_s - start, r.prompt_tokens, r.output_tokens, r.prompt, r.blocks)
        for r in requests
    ]


def _first_text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            return file.read(4096).decode("utf-8", "replace").lstrip("\ufeff \t\r\n")
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror or error}", param=str(path)) from error


def _is_json(path: Path) -> bool:
    return _first_text(path)[:1] in ("{", "[")


def _guess(path: Path) -> str:
    text = _first_text(path)
    if not text:
        raise InvalidArgumentError(f"{path} is empty", param=str(path))
    if text[0] == "[" or '"conversations"' in text:
        return "sharegpt"
    if text[0] == "{":
        return "mooncake" if '"input_length"' in text else "lengths"
    if shape := shape_of_header(text.splitlines()[0]):
        return shape
    raise InvalidArgumentError(
        f"{path}: its first line {text.splitlines()[0][:80]!r} is none of a trace's; "
        f"known shapes: {', '.join(FORMATS[1:])}",
        param=str(path),
    )
