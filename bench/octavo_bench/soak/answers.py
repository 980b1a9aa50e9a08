"""An answer reduced to what must not depend on its company: its choices, bit by bit, whole or streamed."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import msgspec


class _Text(msgspec.Struct):
    content: str | None = None


class _Logprobs(msgspec.Struct):
    """Of either route; each entry stays the text that it was on the wire."""

    content: list[msgspec.Raw] | None = None
    tokens: list[msgspec.Raw] | None = None
    token_logprobs: list[msgspec.Raw] | None = None
    top_logprobs: list[msgspec.Raw] | None = None
    text_offset: list[msgspec.Raw] | None = None

    def columns(self) -> Iterable[tuple[str, list[msgspec.Raw]]]:
        for name in self.__struct_fields__:
            if entries := getattr(self, name):
                yield name, entries


class _ChoicePart(msgspec.Struct):
    index: int = 0
    message: _Text | None = None
    delta: _Text | None = None
    text: str | None = None
    logprobs: _Logprobs | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None
    token_ids: list[int] | None = None


class _Part(msgspec.Struct):
    """A whole answer, or one event of a stream."""

    id: str = ""
    choices: list[_ChoicePart] = []
    error: Any = None


_decode = msgspec.json.Decoder(_Part).decode


@dataclass(slots=True)
class _Choice:
    texts: list[str] = field(default_factory=list)
    tokens: list[int] = field(default_factory=list)
    logprobs: dict[str, list[bytes]] = field(default_factory=dict)
    finishes: list[tuple[str, int | str | None]] = field(default_factory=list)

    def add(self, part: _ChoicePart) -> None:
        text = part.message or part.delta
        self.texts.append((text.content if text else part.text) or "")
        self.tokens += part.token_ids or ()
        if part.logprobs is not None:
            for name, entries in part.logprobs.columns():
                self.logprobs.setdefault(name, []).extend(map(bytes, entries))
        if part.finish_reason is not None:
            self.finishes.append((part.finish_reason, part.stop_reason))


class Answer:
    """Takes an answer in, whole or event by event.

    Attributes:
        id: what the server calls it.
        error: what an event said instead of an answer, or None.
    """

    def __init__(self) -> None:
        self.id = ""
        self.error: Any = None
        self._choices: dict[int, _Choice] = {}

    def add(self, data: bytes) -> None:
        """The JSON of a whole answer or of one event. Raises ``msgspec.DecodeError`` for anything else."""
        part = _decode(data)
        self.id = part.id or self.id
        self.error = part.error or self.error
        for choice in part.choices:
            self._choices.setdefault(choice.index, _Choice()).add(choice)

    def problem(self) -> str | None:
        """Why this is no complete answer: an end is missing, or came twice."""
        if self.error is not None:
            return f"an error in place of an answer: {str(self.error)[:200]}"
        if not self._choices:
            return "no choice"
        for index, choice in sorted(self._choices.items()):
            if len(choice.finishes) != 1:
                return f"choice {index} ended {len(choice.finishes)} times"
        return None

    @property
    def twice(self) -> bool:
        """Whether a choice has more than one end."""
        return any(len(choice.finishes) > 1 for choice in self._choices.values())

    def bits(self) -> bytes:
        """Text, token ids, log-probabilities and ends of all choices; equal answers have equal bits."""
        return msgspec.json.encode(
            [
                [
                    index,
                    "".join(choice.texts),
                    choice.tokens,
                    {name: b",".join(entries).decode() for name, entries in sorted(choice.logprobs.items())},
                    choice.finishes,
                ]
                for index, choice in sorted(self._choices.items())
            ]
        )
