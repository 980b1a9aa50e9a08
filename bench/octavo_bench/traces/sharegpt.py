"""Conversations in ShareGPT's shape: the first question of each, and the length of its answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import msgspec

from octavo.errors import InvalidArgumentError
from octavo_bench.traces.request import TraceRequest


class Turn(msgspec.Struct):
    value: str
    speaker: str = msgspec.field(name="from", default="")


class Conversation(msgspec.Struct):
    conversations: list[Turn]


def read_sharegpt(path: Path, limit: int | None, count_tokens: Callable[[str], int]) -> list[TraceRequest]:
    """One request per conversation that has a question and an answer, both with text."""
    requests: list[TraceRequest] = []
    for conversation in read_conversations(path):
        if limit is not None and len(requests) >= limit:
            break
        turns = conversation.conversations
        if len(turns) >= 2 and turns[0].value and turns[1].value:
            question, answer = turns[0].value, turns[1].value
            requests.append(
                TraceRequest(0.0, max(1, count_tokens(question)), max(1, count_tokens(answer)), question)
            )
    return requests


def read_conversations(path: Path) -> Iterator[Conversation]:
    """Every conversation of a JSON list or of JSON lines; a bad one is an error that names its place."""
    decoder = msgspec.json.Decoder(Conversation)
    for place, record in _records(path):
        try:
            yield decoder.decode(record)
        except msgspec.DecodeError as error:
            raise InvalidArgumentError(f"{path}, {place}: {error}", param=str(path)) from None


def _records(path: Path) -> Iterator[tuple[str, bytes | msgspec.Raw]]:
    with path.open("rb") as file:
        start = file.read(64).lstrip(b"\xef\xbb\xbf \t\r\n")
        file.seek(0)
        if not start.startswith(b"["):
            yield from ((f"line {n}", line) for n, line in enumerate(file, 1) if line.strip())
            return
        whole = file.read()
    try:
        records = msgspec.json.decode(whole.removeprefix(b"\xef\xbb\xbf"), type=list[msgspec.Raw])
    except msgspec.DecodeError as error:
        raise InvalidArgumentError(f"{path} is not JSON: {error}", param=str(path)) from None
    yield from ((f"conversation {n}", record) for n, record in enumerate(records, 1))
