"""Where a JSON value ends, in text that comes in pieces."""

from __future__ import annotations

import re

_IN_STRING = re.compile(r'[^"\\]*')
_BLANKS = re.compile(r"\s*")
_SCALAR = re.compile(r"[A-Za-z0-9+.\-]*")
_BETWEEN = re.compile(r"[A-Za-z0-9+.\-\s:,]*")
_ENDS_SCALAR = frozenset(" \t\r\n,}]")


class JsonValue:
    """Follows one value: strings, escapes and depth. What is inside is not checked further.

    Attributes:
        done: the value is complete.
        bad: a character that no JSON value can have there.
        opening: its first character.
    """

    def __init__(self) -> None:
        self.done = False
        self.bad = False
        self.opening = ""
        self._depth = 0
        self._in_string = False
        self._escaped = False

    def feed(self, text: str, at: int) -> int:
        """Reads from `at`; where it stopped: behind the value, at the bad character, or at the end of the text."""
        end = len(text)
        if not self.opening:
            at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
            if at == end:
                return at
            self.opening = text[at]
            if self.opening in "}],:":
                self.bad = True
                return at
        while at < end:
            if self._in_string:
                at = self._string(text, at)
            elif self._depth:
                at = self._container(text, at)
            elif self.opening in '"{[':
                at = self._open(text, at)
            else:
                at = _SCALAR.match(text, at).end()  # type: ignore[union-attr]
                if at < end:
                    self.done = text[at] in _ENDS_SCALAR
                    self.bad = not self.done
            if self.done or self.bad:
                return at
        return at

    def _string(self, text: str, at: int) -> int:
        if self._escaped:
            self._escaped = False
            return at + 1
        at = _IN_STRING.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        if text[at] == "\\":
            self._escaped = True
        else:
            self._in_string = False
            self.done = not self._depth
        return at + 1

    def _container(self, text: str, at: int) -> int:
        at = _BETWEEN.match(text, at).end()  # type: ignore[union-attr]
        return at if at == len(text) else self._open(text, at)

    def _open(self, text: str, at: int) -> int:
        c = text[at]
        if c == '"':
            self._in_string = True
        elif c in "{[":
            self._depth += 1
        elif c in "}]":
            self._depth -= 1
            self.done = not self._depth
        else:
            self.bad = True
            return at
        return at + 1
