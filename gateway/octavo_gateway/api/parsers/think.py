"""Thoughts between two tags at the start of an answer; what follows goes to another scanner."""

from __future__ import annotations

from octavo_gateway.api.parsers.events import Content, Event, Reasoning, Scanner
from octavo_gateway.api.parsers.markers import MarkerSearch, TrailingBlanks


class ThinkScanner:
    """Blanks around the thought belong to neither side.

    Args:
        opened: the prompt ends with the opening tag.
    """

    def __init__(self, opening: str, closing: str, answer: Scanner, *, opened: bool) -> None:
        self._tag = opening
        self._answer = answer
        self._closing = MarkerSearch(closing)
        self._blanks = TrailingBlanks()
        self._start: str | None = None if opened else ""  # what has come while no thought has begun
        self._lead = True  # nothing of the thought, or of the answer behind it, has come yet
        self.thinking = opened
        self.may_think = not opened  # the answer's first words are still open to be the tag

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        if self.may_think:
            text = self._begin(text, events)
        if self.thinking and text:
            text = self._think(text, events)
        if not self.thinking and not self.may_think:
            text = text.lstrip() if self._lead else text
            self._lead = self._lead and not text
            if text:
                events += self._answer.feed(text)
        return events

    def finish(self) -> list[Event]:
        if self.thinking:
            return [Reasoning(self._blanks.feed(self._closing.release())), *self._answer.finish()]
        events: list[Event] = []
        if self.may_think:
            events += self._answer.feed(self._blanks.release() + (self._start or ""))
        return events + self._answer.finish()

    def _begin(self, text: str, events: list[Event]) -> str:
        """Before the thought: what is left to read once it is clear whether there is one."""
        text = (self._start or "") + text
        bare = text.lstrip()
        if len(bare) < len(self._tag) and self._tag.startswith(bare):
            self._blanks.feed(text[: len(text) - len(bare)])
            self._start = bare
            return ""
        self.may_think = False
        if bare.startswith(self._tag):
            self._blanks.drop()
            self.thinking = True
            return bare[len(self._tag) :]
        self._lead = False
        return self._blanks.release() + text

    def _think(self, text: str, events: list[Event]) -> str:
        if self._lead:
            text = text.lstrip()
            self._lead = not text
        before, closed, rest = self._closing.feed(text)
        events.append(Reasoning(self._blanks.feed(before)))
        if closed:
            self._blanks.drop()
            self.thinking = False
            self._lead = True
        return rest


class PlainScanner:
    """An answer that is all text."""

    def feed(self, text: str) -> list[Event]:
        return [Content(text)]

    def finish(self) -> list[Event]:
        return []
