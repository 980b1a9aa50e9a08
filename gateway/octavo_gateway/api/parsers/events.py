"""What a scanner finds in an answer, in order."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Protocol


@dataclass(frozen=True, slots=True)
class Content:
    text: str


@dataclass(frozen=True, slots=True)
class Reasoning:
    text: str


@dataclass(frozen=True, slots=True)
class CallStart:
    index: int  # from 0, one more for each call of the answer
    id: str
    name: str


@dataclass(frozen=True, slots=True)
class CallArguments:
    """More of the JSON text of a call's arguments."""

    index: int
    text: str


Event = Content | Reasoning | CallStart | CallArguments


class Scanner(Protocol):
    """Reads an answer that comes in pieces. How it is cut does not change what is found.

    Each character is looked at a bounded number of times, whatever the text.
    """

    def feed(self, text: str) -> list[Event]: ...
    def finish(self) -> list[Event]:
        """The text is at its end: what was held back."""
        ...


class Calls:
    """Numbers the calls of one answer.

    Attributes:
        cut: the answer ended before the model did; nothing is added to what it wrote.
    """

    def __init__(self, new_id: Callable[[], str]) -> None:
        self._new_id = new_id
        self.cut = False
        self.count = 0

    def start(self, name: str) -> CallStart:
        event = CallStart(self.count, self._new_id(), name)
        self.count += 1
        return event

    def arguments(self, text: str) -> CallArguments:
        """More arguments of the call that was started last."""
        return CallArguments(self.count - 1, text)


def joined(events: Iterable[Event]) -> list[Event]:
    """The same with neighbours of one kind put together and nothing empty."""
    out: list[Event] = []
    texts: list[str] = []  # of the neighbours that end in `last`
    last: Event | None = None

    def close() -> None:
        if last is not None:
            out.append(_with_text(last, "".join(texts)) if len(texts) > 1 else last)

    for event in events:
        if isinstance(event, CallStart):
            close()
            out.append(event)
            last, texts = None, []
        elif not event.text:
            continue
        elif type(event) is type(last):
            texts.append(event.text)
        else:
            close()
            last, texts = event, [event.text]
    close()
    return out


def _with_text(event: Event, text: str) -> Event:
    if isinstance(event, CallArguments):
        return CallArguments(event.index, text)
    return Content(text) if isinstance(event, Content) else Reasoning(text)
