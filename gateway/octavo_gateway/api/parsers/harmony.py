"""gpt-oss's harmony: messages with a channel each, ``<|channel|>analysis<|message|>…<|end|><|start|>assistant…``."""

from __future__ import annotations

import re
from collections.abc import Set

from octavo_gateway.api.parsers.events import Calls, Content, Event, Reasoning
from octavo_gateway.api.parsers.markers import MarkerSearch

_START, _CHANNEL, _MESSAGE = "<|start|>", "<|channel|>", "<|message|>"
_ENDS = ("<|end|>", "<|call|>", "<|return|>")
_FUNCTIONS = "functions."
_RECIPIENT = re.compile(r"\bto=([^\s<]+)")
_CHANNEL_NAME = re.compile(r"<\|channel\|>\s*([a-z]+)")
# How an answer that goes on behind `<|start|>assistant` can begin.
_BEGINNINGS = (_CHANNEL, _MESSAGE, _START, " to=", "to=")


class HarmonyScanner:
    """Analysis is reasoning, a message to a function is a call, everything else is text."""

    def __init__(self, calls: Calls, known: Set[str]) -> None:
        self._calls = calls
        self._known = known
        self._state = self._begin
        self._head: list[str] = []
        self._head_end = MarkerSearch(_MESSAGE)
        self._body_end = MarkerSearch(*_ENDS, _START, _CHANNEL)
        self._kind: type[Content] | type[Reasoning] | None = None  # of the body that is read; None: a call
        self._empty = True  # nothing of the body yet
        self._told: set[type[Event]] = set()
        self.thinking = False

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        while text:
            text = self._state(text, events)
        return events

    def finish(self) -> list[Event]:
        if self._state == self._body:
            events: list[Event] = []
            held = self._body_end.release()
            if self._kind is not None or not self._calls.cut:
                self._tell(held, events)
            self._end_body(events)
            return events
        return [Content("".join(self._head))] if self._state == self._begin else []

    def _begin(self, text: str, events: list[Event]) -> str:
        """An answer without channels is all text."""
        text = "".join(self._head) + text
        self._head = []
        if any(text.startswith(b) for b in _BEGINNINGS):
            self._state = self._header
        elif any(b.startswith(text) for b in _BEGINNINGS):
            self._head = [text]
            return ""
        else:
            self._open(Content)
        return text

    def _header(self, text: str, events: list[Event]) -> str:
        before, found, text = self._head_end.feed(text)
        self._head.append(before)
        if found is None:
            return text
        head, self._head = "".join(self._head), []
        channel = _CHANNEL_NAME.search(head)
        recipient = _RECIPIENT.search(head)
        name = recipient[1] if recipient else ""
        if name.startswith(_FUNCTIONS) or name in self._known:
            events.append(self._calls.start(name.removeprefix(_FUNCTIONS)))
            self._open(None)
        else:
            self._open(Reasoning if channel and channel[1] == "analysis" else Content)
        return text

    def _open(self, kind: type[Content] | type[Reasoning] | None) -> None:
        self._kind, self._empty = kind, True
        self.thinking = kind is Reasoning
        self._state = self._body

    def _body(self, text: str, events: list[Event]) -> str:
        before, marker, text = self._body_end.feed(text)
        self._tell(before, events)
        if marker is None:
            return text
        self._end_body(events)
        if marker in _ENDS:
            self._state = self._between
            return text
        self._state = self._header
        self._head = [marker]
        return text

    def _between(self, text: str, events: list[Event]) -> str:
        """Behind a message's end; the next one's header has its own markers."""
        text = text.lstrip()
        if text:
            self._state = self._header
        return text

    def _tell(self, text: str, events: list[Event]) -> None:
        if not text:
            return
        if self._kind is None:
            events.append(self._calls.arguments(text))
        else:
            if self._empty and self._kind in self._told:
                text = "\n" + text  # another message of the same kind
            events.append(self._kind(text))
            self._told.add(self._kind)
        self._empty = False

    def _end_body(self, events: list[Event]) -> None:
        if self._kind is None and self._empty and not self._calls.cut:
            events.append(self._calls.arguments("{}"))
        self.thinking = False
