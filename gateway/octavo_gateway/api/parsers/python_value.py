"""A Python literal in pieces, turned into JSON as it comes."""

from __future__ import annotations

import json
import re

_BLANKS = re.compile(r"\s*")
_WORD = re.compile(r"[\w.+\-]*")
_PLAIN = {"'": re.compile(r"[^'\\]*"), '"': re.compile(r'[^"\\]*')}
_NUMBER = re.compile(r"-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?")
_WORDS = {"True": "true", "False": "false", "None": "null"}
_CLOSING = {"[": "]", "(": ")", "{": "}"}
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "a": "\a", "v": "\v", "0": "\0", "\n": ""}
_CODE_LENGTHS = {"x": 2, "u": 4, "U": 8}


class PythonValue:
    """One literal: strings, numbers, booleans, None, lists, tuples, dicts.

    Attributes:
        done: it is complete.
        bad: a character that no literal can have there.
    """

    def __init__(self) -> None:
        self.done = False
        self.bad = False
        self._open: list[str] = []  # the closing brackets to come
        self._comma = False  # one was read, and is written once something follows it
        self._word: list[str] = []
        self._quote = ""
        self._escape = ""  # from the backslash on

    def feed(self, text: str, at: int, out: list[str]) -> int:
        """Reads from `at` and appends JSON to `out`; where it stopped."""
        while at < len(text) and not self.done and not self.bad:
            if self._quote:
                at = self._string(text, at, out)
            elif self._word:
                at = self._in_word(text, at, out)
            else:
                at = self._between(text, at, out)
        return at

    def _between(self, text: str, at: int, out: list[str]) -> int:
        at = _BLANKS.match(text, at).end()  # type: ignore[union-attr]
        if at == len(text):
            return at
        c = text[at]
        if self._open and c == self._open[-1]:
            self._comma = False
            out.append("}" if self._open.pop() == "}" else "]")
            self.done = not self._open
        elif self._open and c == ",":
            self._comma = True
        elif self._open and c == ":":
            out.append(": ")
        else:
            if self._comma:
                out.append(", ")
                self._comma = False
            if c in _CLOSING:
                self._open.append(_CLOSING[c])
                out.append("{" if c == "{" else "[")
            elif c in _PLAIN:
                self._quote = c
                out.append('"')
            elif _WORD.match(c).end():  # type: ignore[union-attr]
                self._word = [c]
            else:
                self.bad = True
                return at
        return at + 1

    def _in_word(self, text: str, at: int, out: list[str]) -> int:
        stop = _WORD.match(text, at).end()  # type: ignore[union-attr]
        self._word.append(text[at:stop])
        if stop < len(text):
            self._end_word(out)
        return stop

    def _end_word(self, out: list[str]) -> None:
        word, self._word = "".join(self._word), []
        if _NUMBER.fullmatch(word):
            out.append(word)
        else:
            out.append(_WORDS.get(word) or json.dumps(word, ensure_ascii=False))
        self.done = not self._open

    def _string(self, text: str, at: int, out: list[str]) -> int:
        if self._escape:
            self._escape += text[at]
            self._unescape(out)
            return at + 1
        stop = _PLAIN[self._quote].match(text, at).end()  # type: ignore[union-attr]
        out.append(_json_text(text[at:stop]))
        if stop == len(text):
            return stop
        if text[stop] == "\\":
            self._escape = "\\"
        else:
            out.append('"')
            self._quote = ""
            self.done = not self._open
        return stop + 1

    def _unescape(self, out: list[str]) -> None:
        kind = self._escape[1]
        length = _CODE_LENGTHS.get(kind)
        if length is None:
            out.append(_json_text(_ESCAPES.get(kind, kind if kind in "'\"\\" else self._escape)))
        elif len(self._escape) < 2 + length:
            return
        else:
            try:
                out.append(_json_text(chr(int(self._escape[2:], 16))))
            except (ValueError, OverflowError):
                out.append(_json_text(self._escape))
        self._escape = ""


def _json_text(text: str) -> str:
    """Text as it stands within a JSON string."""
    return json.dumps(text, ensure_ascii=text.isascii())[1:-1]
