"""Calls written as JSON: ``{"name": …, "arguments": {…}}``, one or several, read as they come."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Set

from octavo_gateway.api.parsers.events import Calls, Event
from octavo_gateway.api.parsers.json_value import JsonValue

_BLANKS = re.compile(r"\s*")
_ARGUMENTS = ("arguments", "parameters")
_BESIDE = ("type", "id")

# Reads text from a position; the position where it stopped.
_State = Callable[[str, int], int]


class _Object:
    """One call. `at` is where reading goes on; it stops behind the closing brace or where it goes wrong."""

    def __init__(self, calls: Calls, known: Set[str] | None) -> None:
        self._calls = calls
        self._known = known
        self._state: _State = self._open
        self._value = JsonValue()
        self._key = ""
        self._text: list[str] = []  # of a key, or of a value that is needed as a whole
        self._early: list[str] = []  # arguments that came before the name
        self._told = False  # some of the arguments have been
        self.started = False
        self.done = False
        self.bad = False
        self.events: list[Event] = []

    def feed(self, text: str, at: int) -> int:
        while at < len(text) and not self.done and not self.bad:
            at = self._state(text, at)
        return at

    def close(self) -> None:
        """No more of it comes: a call that has begun is told as far as it got."""
        if self.started and not self._told:
            self._tell("{}")

    def _open(self, text: str, at: int) -> int:
        self._state = self._before_key
        return at + 1

    def _before_key(self, text: str, at: int) -> int:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] == "}":
            return self._end(at)
        if text[at] != '"':
            return self._fail(at)
        self._start_value(self._in_key)
        return at

    def _in_key(self, text: str, at: int) -> int:
        stop = self._read_whole(text, at)
        if self._value.done:
            self._key = str(self._decoded())
            self._state = self._colon
        return stop

    def _colon(self, text: str, at: int) -> int:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] != ":":
            return self._fail(at)
        if self._key == "name" and not self.started:
            self._start_value(self._in_name)
        elif self._key in _ARGUMENTS and not self._told and not self._early:
            self._start_value(self._in_arguments)
        elif self._known is not None and self._key not in _BESIDE and not self.started:
            return self._fail(at)
        else:
            self._start_value(self._in_other)
        return at + 1

    def _in_name(self, text: str, at: int) -> int:
        stop = self._read_whole(text, at)
        if self._value.done:
            name = self._decoded()
            if not isinstance(name, str) or not name or (self._known is not None and name not in self._known):
                return self._fail(stop)
            self.started = True
            self.events.append(self._calls.start(name))
            early, self._early = "".join(self._early), []
            self._tell(early)
            self._state = self._after_value
        return stop

    def _in_other(self, text: str, at: int) -> int:
        stop = self._value.feed(text, at)
        return self._value_ends(stop)

    def _in_arguments(self, text: str, at: int) -> int:
        """An object is told as it comes; a string holds the arguments, and null stands for none."""
        if not self._value.opening:
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        stop = self._value.feed(text, at)
        if self._value.opening not in '"n':
            self._tell(text[at:stop])
        else:
            self._text.append(text[at:stop])
            if self._value.done:
                whole = self._decoded()
                self._tell(whole if isinstance(whole, str) and whole.strip() else "{}")
        return self._value_ends(stop)

    def _after_value(self, text: str, at: int) -> int:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] == "}":
            return self._end(at)
        if text[at] != ",":
            return self._fail(at)
        self._state = self._before_key
        return at + 1

    def _start_value(self, state: _State) -> None:
        self._value = JsonValue()
        self._text = []
        self._state = state

    def _read_whole(self, text: str, at: int) -> int:
        stop = self._value.feed(text, at)
        self._text.append(text[at:stop])
        if self._value.bad or self._value.opening not in ("", '"'):
            return self._fail(stop)
        return stop

    def _value_ends(self, stop: int) -> int:
        if self._value.bad:
            return self._fail(stop)
        if self._value.done:
            self._state = self._after_value
        return stop

    def _decoded(self) -> object:
        text = "".join(self._text)
        try:
            return json.loads(text)
        except ValueError:
            return text.strip().strip('"')

    def _tell(self, text: str) -> None:
        if not text:
            return
        if self.started:
            self._told = True
            self.events.append(self._calls.arguments(text))
        else:
            self._early.append(text)

    def _end(self, at: int) -> int:
        self.done = self.started
        self.bad = not self.started
        self.close()
        return at + 1

    def _fail(self, at: int) -> int:
        self.bad = True
        self.close()
        return at


class JsonCalls:
    """Reads one call, calls with `;` between them, or a list of calls.

    Args:
        known: take only calls of these functions and only what looks like a call from its first key on; for formats
            in which nothing announces a call.

    Attributes:
        ended: nothing of it follows any more.
        started: at least one call was found.
    """

    def __init__(self, calls: Calls, known: Set[str] | None = None) -> None:
        self._calls = calls
        self._known = known
        self._object: _Object | None = None
        self._in_list = False
        self._raw: list[str] = []  # what was read before the first call was certain
        self._may_follow = True
        self.ended = False
        self.started = False

    def feed(self, text: str) -> tuple[list[Event], str]:
        """(what was found, the text behind the calls once they have ended)."""
        events: list[Event] = []
        at = 0
        while at < len(text) and not self.ended:
            at = (
                self._between(text, at)
                if self._object is None
                else self._within(self._object, text, at, events)
            )
        if not self.started:
            self._raw.append(text[:at])
        return events, text[at:]

    def finish(self) -> list[Event]:
        """The text is at its end."""
        self.ended = True
        if self._object is None:
            return []
        if not self._calls.cut:
            self._object.close()
        return self._object.events

    def take_raw(self) -> str:
        """What was read, where it turned out to be no call."""
        raw, self._raw = self._raw, []
        return "".join(raw)

    def _between(self, text: str, at: int) -> int:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        c = text[at]
        if c == "{" and self._may_follow:
            self._object = _Object(self._calls, self._known)
            return at
        if c == "[" and not self._in_list and not self.started:
            self._in_list = True
            return at + 1
        if c in ",;" and self.started:
            self._may_follow = True
            return at + 1
        self.ended = True
        return at + 1 if c == "]" and self._in_list else at

    def _within(self, call: _Object, text: str, at: int, events: list[Event]) -> int:
        at = call.feed(text, at)
        events += call.events
        call.events = []
        self.started = self.started or call.started
        self.ended = call.bad
        if call.done:
            self._object = None
            self._may_follow = not self._in_list
        return at
