"""Mistral: ``[TOOL_CALLS][{"name": …, "arguments": {…}}, …]``, or ``[TOOL_CALLS]name[ARGS]{…}`` for each call."""

from __future__ import annotations

from octavo_gateway.api.parsers.events import Calls, Content, Event
from octavo_gateway.api.parsers.json_calls import JsonCalls
from octavo_gateway.api.parsers.json_value import JsonValue
from octavo_gateway.api.parsers.markers import MarkerSearch, TrailingBlanks

_CALLS, _ARGS, _ID = "[TOOL_CALLS]", "[ARGS]", "[CALL_ID]"


class MistralScanner:
    def __init__(self, calls: Calls) -> None:
        self._calls = calls
        self._opening = MarkerSearch(_CALLS)
        self._blanks = TrailingBlanks()
        self._state = self._text
        self._listed = JsonCalls(calls)
        self._head: list[str] = []  # of a named call, up to its arguments
        self._head_end = MarkerSearch(_ARGS, "{")
        self._value = JsonValue()

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        while text:
            text = self._state(text, events)
        return events

    def finish(self) -> list[Event]:
        if self._state == self._text:
            if self._calls.count:
                return []  # blanks or the beginning of a marker behind the calls
            text = self._blanks.feed(self._opening.release())
            return [Content(text + self._blanks.release())]
        if self._state == self._list:
            events = self._listed.finish()
            return events if self._listed.started else [Content(_CALLS + self._listed.take_raw())]
        if self._state == self._named:
            return [Content(_CALLS + "".join(self._head) + self._head_end.release())]
        if self._state == self._arguments and not self._value.opening and not self._calls.cut:
            return [self._calls.arguments("{}")]
        return []

    def _text(self, text: str, events: list[Event]) -> str:
        before, opened, text = self._opening.feed(text)
        events.append(Content(self._blanks.feed(before)))
        if opened:
            self._state = self._either
        return text

    def _either(self, text: str, events: list[Event]) -> str:
        text = text.lstrip()
        if text:
            self._blanks.drop()
            self._listed = JsonCalls(self._calls)
            self._state = self._list if text[0] in "[{" else self._named
        return text

    def _list(self, text: str, events: list[Event]) -> str:
        found, text = self._listed.feed(text)
        events += found
        if self._listed.ended:
            if not self._listed.started:
                events.append(Content(_CALLS + self._listed.take_raw()))
            self._state = self._text
        return text

    def _named(self, text: str, events: list[Event]) -> str:
        before, marker, text = self._head_end.feed(text)
        self._head.append(before)
        if marker is None:
            return text
        head, self._head = "".join(self._head), []
        name = head.partition(_ID)[0].strip()
        if len(name.split()) != 1:
            events.append(Content(_CALLS + head + marker))
            self._state = self._text
            return text
        events.append(self._calls.start(name))
        self._value = JsonValue()
        self._state = self._arguments
        return "{" + text if marker == "{" else text

    def _arguments(self, text: str, events: list[Event]) -> str:
        if not self._value.opening:
            text = text.lstrip()
        stop = self._value.feed(text, 0)
        events.append(self._calls.arguments(text[:stop]))
        if self._value.done or self._value.bad:
            self._state = self._text
        return text[stop:]
