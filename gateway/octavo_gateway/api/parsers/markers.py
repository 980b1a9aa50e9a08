"""Text in pieces: finding fixed strings in it, and holding back blanks that may turn out to be padding."""

from __future__ import annotations

import re


class MarkerSearch:
    """Finds the first of some markers. None of them may be part of another."""

    def __init__(self, *markers: str) -> None:
        self._pattern = re.compile("|".join(map(re.escape, markers)))
        self._prefixes = frozenset(marker[:k] for marker in markers for k in range(1, len(marker)))
        self._longest = max(map(len, markers)) - 1
        self._held = ""

    def feed(self, text: str) -> tuple[str, str | None, str]:
        """(text before a marker, the marker, what comes behind it), or (text without any, None, "").

        An end that can still become a marker is held back.
        """
        text = self._held + text
        found = self._pattern.search(text)
        if found is not None:
            self._held = ""
            return text[: found.start()], found[0], text[found.end() :]
        for k in range(min(self._longest, len(text)), 0, -1):
            if text[-k:] in self._prefixes:
                self._held = text[-k:]
                return text[:-k], None, ""
        self._held = ""
        return text, None, ""

    def release(self) -> str:
        """What is held back, which is no marker after all."""
        held, self._held = self._held, ""
        return held


class TrailingBlanks:
    """Passes text on, but keeps blanks at its end until more text shows that they belong to it."""

    def __init__(self) -> None:
        self._held: list[str] = []

    def feed(self, text: str) -> str:
        kept = text.rstrip()
        if not kept:
            if text:
                self._held.append(text)
            return ""
        out = "".join((*self._held, kept))
        self._held = [text[len(kept) :]] if len(kept) < len(text) else []
        return out

    def drop(self) -> None:
        self._held = []

    def release(self) -> str:
        held, self._held = "".join(self._held), []
        return held
