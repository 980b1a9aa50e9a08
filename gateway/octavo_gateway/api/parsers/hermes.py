"""Hermes, Qwen and SmolLM: ``<tool_call>{"name": …, "arguments": {…}}</tool_call>``, among text."""

from __future__ import annotations

from octavo_gateway.api.parsers.events import Calls, Content, Event
from octavo_gateway.api.parsers.json_calls import JsonCalls
from octavo_gateway.api.parsers.markers import MarkerSearch, TrailingBlanks


class TaggedJsonScanner:
    """Text with calls between two tags. What is between them and is no call stays text."""

    def __init__(self, calls: Calls, opening: str, closing: str) -> None:
        self._calls = calls
        self._opening = MarkerSearch(opening)
        self._next = MarkerSearch(opening, closing)
        self._blanks = TrailingBlanks()
        self._inside: JsonCalls | None = None
        self._tag = opening

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        while text:
            if self._inside is None:
                text = self._outside(text, events)
            elif not self._inside.ended:
                text = self._in_calls(self._inside, text, events)
            else:
                _, tag, text = self._next.feed(text)
                if tag is not None:
                    self._inside = JsonCalls(self._calls) if tag == self._tag else None
        return events

    def finish(self) -> list[Event]:
        inside = self._inside
        if inside is not None:
            events = inside.finish()
            if inside.started:
                return events
            text = self._text_of(inside)
        elif self._calls.count:
            return []  # blanks or the beginning of a tag behind the calls
        else:
            text = self._blanks.feed(self._opening.release())
        return [Content(text + self._blanks.release())]

    def _outside(self, text: str, events: list[Event]) -> str:
        before, opened, text = self._opening.feed(text)
        events.append(Content(self._blanks.feed(before)))
        if opened:
            self._inside = JsonCalls(self._calls)
        return text

    def _in_calls(self, inside: JsonCalls, text: str, events: list[Event]) -> str:
        found, text = inside.feed(text)
        events += found
        if inside.started:
            self._blanks.drop()
        elif inside.ended:
            events.append(Content(self._text_of(inside)))
            self._inside = None
        return text

    def _text_of(self, inside: JsonCalls) -> str:
        return self._blanks.feed(self._tag + inside.take_raw())
