"""Traces as JSON lines: Mooncake's, and plain lists of lengths."""

from __future__ import annotations

from pathlib import Path

import msgspec

from octavo.errors import InvalidArgumentError
from octavo_bench.traces.request import TraceRequest


class MooncakeLine(msgspec.Struct):
    """``timestamp`` in milliseconds; ``hash_ids`` name the prompt's blocks of 512 tokens."""

    timestamp: float
    input_length: int
    output_length: int
    hash_ids: tuple[int, ...] = ()

    def request(self) -> TraceRequest:
        return TraceRequest(
            self.timestamp / 1000, self.input_length, self.output_length, blocks=self.hash_ids
        )


class LengthsLine(msgspec.Struct):
    prompt_tokens: int
    output_tokens: int
    arrival_s: float = 0.0

    def request(self) -> TraceRequest:
        return TraceRequest(self.arrival_s, self.prompt_tokens, self.output_tokens)


def read_jsonl(path: Path, form: str, limit: int | None) -> list[TraceRequest]:
    """The lines of ``path`` in file order; every bad one is an error that names its number."""
    kind: type[MooncakeLine] | type[LengthsLine] = MooncakeLine if form == "mooncake" else LengthsLine
    decoder = msgspec.json.Decoder(kind)
    requests: list[TraceRequest] = []
    with path.open("rb") as file:
        for number, line in enumerate(file, 1):
            if limit is not None and len(requests) >= limit:
                break
            if not line.strip():
                continue
            try:
                request = decoder.decode(line).request()
                for name in ("prompt_tokens", "output_tokens"):
                    if getattr(request, name) < 1:
                        raise ValueError(f"{name} is {getattr(request, name)}, at least 1 is needed")
            except (ValueError, msgspec.DecodeError) as error:
                raise InvalidArgumentError(f"{path}, line {number}: {error}", param=str(path)) from None
            requests.append(request)
    return requests
