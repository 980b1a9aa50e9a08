"""Llama's pythonic calls: ``[name(key='value'), other(x=1)]`` as the whole answer."""

from __future__ import annotations

import json
import re
from collections.abc import Set

from octavo_gateway.api.parsers.events import Calls, Content, Event
from octavo_gateway.api.parsers.python_value import PythonValue

_BLANKS = re.compile(r"\s*")
_NAME = re.compile(r"[\w.\-]*")
_LONGEST_NAME = 256
_LEADS = ("<|python_start|>", "<|python_tag|>")


class PythonicScanner:
    """Arguments are told as JSON. An answer that is no list of calls of `known` functions is text."""

    def __init__(self, calls: Calls, known: Set[str]) -> None:
        self._calls = calls
        self._known = known
        self._state = self._lead
        self._word = ""
        self._raw: list[str] = []  # the answer, until its first call is certain
        self._is_text = False
        self._ended = False
        self._value = PythonValue()
        self._first = True  # no argument of the call yet

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        at = 0
        if not self._calls.count and not self._is_text:
            self._raw.append(text)
        elif self._is_text:
            return [Content(text)]
        while at < len(text) and not self._ended:
            at = self._state(text, at, events)
        return events

    def finish(self) -> list[Event]:
        if self._is_text or self._calls.count:
            return []
        return [Content("".join(self._raw))]

    def _lead(self, text: str, at: int, events: list[Event]) -> int:
        """Before the opening bracket."""
        if not self._word:
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
            if at == len(text):
                return at
        if text[at] == "[" and self._word in ("", *_LEADS):
            self._word = ""
            self._state = self._name
            return at + 1
        self._word = (self._word + text[at]).strip() or self._word
        if not any(lead.startswith(self._word) for lead in _LEADS):
            return self._stop(text, events)
        return at + 1

    def _name(self, text: str, at: int, events: list[Event]) -> int:
        """Of a function, up to its parenthesis."""
        if not self._word:
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        stop = _NAME.match(text, at).end()  # type: ignore[union-attr]
        self._word += text[at:stop]
        if stop == len(text) and len(self._word) <= _LONGEST_NAME:
            return stop
        if text[stop : stop + 1] != "(" or self._word not in self._known:
            return self._stop(text, events)
        events.append(self._calls.start(self._word))
        events.append(self._calls.arguments("{"))
        self._raw, self._word, self._first = [], "", True
        self._state = self._key
        return stop + 1

    def _key(self, text: str, at: int, events: list[Event]) -> int:
        """Of an argument, up to its equals sign; or the call's end."""
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        stop = _NAME.match(text, at).end()  # type: ignore[union-attr]
        self._word += text[at:stop]
        if stop == len(text) and len(self._word) <= _LONGEST_NAME:
            return stop
        if text[stop : stop + 1] == ")" and not self._word:
            return self._end_call(stop, events)
        if text[stop : stop + 1] != "=" or not self._word:
            return self._stop(text, events)
        key = json.dumps(self._word, ensure_ascii=False)
        events.append(self._calls.arguments(("" if self._first else ", ") + key + ": "))
        self._word, self._first = "", False
        self._value = PythonValue()
        self._state = self._in_value
        return stop + 1

    def _in_value(self, text: str, at: int, events: list[Event]) -> int:
        out: list[str] = []
        stop = self._value.feed(text, at, out)
        events.append(self._calls.arguments("".join(out)))
        if self._value.bad:
            return self._stop(text, events)
        if self._value.done:
            self._state = self._after_value
        return stop

    def _after_value(self, text: str, at: int, events: list[Event]) -> int:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] == ")":
            return self._end_call(at, events)
        if text[at] != ",":
            return self._stop(text, events)
        self._state = self._key
        return at + 1

    def _after_call(self, text: str, at: int, events: list[Event]) -> int:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] != ",":
            return self._stop(text, events)
        self._state = self._name
        return at + 1

    def _end_call(self, at: int, events: list[Event]) -> int:
        events.append(self._calls.arguments("}"))
        self._state = self._after_call
        return at + 1

    def _stop(self, text: str, events: list[Event]) -> int:
        """The calls end here; without one the answer is text."""
        self._ended = True
        if not self._calls.count:
            self._is_text = True
            events.append(Content("".join(self._raw)))
            self._raw = []
        return len(text)
