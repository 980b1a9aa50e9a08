"""Datasets read from files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import msgspec

from octavo.errors import InvalidArgumentError
from octavo_bench.client import Shot
from octavo_bench.datasets.prompts import PromptMaker
from octavo_bench.traces import TraceRequest, read_trace

if TYPE_CHECKING:
    from octavo_bench.datasets.dataset import DatasetOptions

T = TypeVar("T")

CUSTOM_OUTPUT = 256
# Shorter questions and answers of ShareGPT measure nothing.
LEAST_SHAREGPT = 4


class CustomLine(msgspec.Struct):
    prompt: str
    output_tokens: int | None = None


def trace(options: DatasetOptions, count: int, maker: PromptMaker, form: str) -> list[Shot]:
    """Requests as long as a trace's, and due when they arrived; ShareGPT's are its own texts, in random order."""
    path = str(options.path)
    requests = read_trace(path, form, count_tokens=options.count_tokens)
    if form == "sharegpt":
        requests = [r for r in requests if min(r.prompt_tokens, r.output_tokens) >= LEAST_SHAREGPT]
        requests = [requests[i] for i in maker.rng.permutation(len(requests))]
    if options.max_input_len is not None:
        requests = [r for r in requests if r.prompt_tokens <= options.max_input_len]
    if not requests:
        raise InvalidArgumentError(
            f"{path} holds no request within the limits on its length", param="dataset_path"
        )
    if form == "sharegpt":
        requests = _enough(requests, count, options.oversample)
    return [_shot(options, request, maker) for request in requests[:count]]


def _shot(options: DatasetOptions, request: TraceRequest, maker: PromptMaker) -> Shot:
    output = options.output_len or request.output_tokens
    if options.max_output_len is not None:
        output = min(output, options.max_output_len)
    prompt = (
        request.prompt
        if request.prompt is not None
        else maker.of_blocks(request.blocks, request.prompt_tokens)
    )
    return Shot(request.arrival_s, prompt, output)


def custom(options: DatasetOptions, count: int, maker: PromptMaker) -> list[Shot]:
    """The prompts of a file of JSON lines, in random order."""
    path = Path(str(options.path))
    decoder = msgspec.json.Decoder(CustomLine)
    lines: list[CustomLine] = []
    try:
        with path.open("rb") as file:
            for number, line in enumerate(file, 1):
                if not line.strip():
                    continue
                try:
                    lines.append(decoder.decode(line))
                except msgspec.DecodeError as error:
                    raise InvalidArgumentError(
                        f"{path}, line {number}: {error}", param="dataset_path"
                    ) from None
                if (lines[-1].output_tokens or 1) < 1 or not lines[-1].prompt:
                    raise InvalidArgumentError(
                        f"{path}, line {number}: an empty prompt, or output_tokens below 1",
                        param="dataset_path",
                    )
    except OSError as error:
        raise InvalidArgumentError(f"{path}: {error.strerror or error}", param="dataset_path") from error
    if not lines:
        raise InvalidArgumentError(f"{path} holds no prompts", param="dataset_path")
    lines = [lines[i] for i in maker.rng.permutation(len(lines))]
    return [
        Shot(0.0, line.prompt, options.output_len or line.output_tokens or CUSTOM_OUTPUT)
        for line in _enough(lines, count, options.oversample)[:count]
    ]


def _enough(items: list[T], count: int, oversample: bool) -> list[T]:
    """The items, repeated until there are ``count`` where that is wanted."""
    return items * -(-count // len(items)) if oversample and len(items) < count else items
