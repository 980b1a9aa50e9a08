"""Formats in which an answer that is a call begins with it: Llama 3's JSON, Gemma's, Phi's."""

from __future__ import annotations

from collections.abc import Set

from octavo_gateway.api.parsers.events import Calls, Content, Event
from octavo_gateway.api.parsers.json_calls import JsonCalls
from octavo_gateway.api.parsers.markers import MarkerSearch, TrailingBlanks


class LeadingJsonScanner:
    """JSON at the start of the answer, bare or behind one of `leads`, or anywhere behind one of `markers`.

    Without a marker only calls of `known` functions are calls; every other JSON is the answer's text. What follows
    the calls, a closing fence for example, is dropped.
    """

    def __init__(
        self, calls: Calls, known: Set[str], *, markers: tuple[str, ...] = (), leads: tuple[str, ...] = ()
    ) -> None:
        self._calls = calls
        self._known = known
        self._leads = leads
        self._markers = frozenset(markers)
        self._search = MarkerSearch(*markers) if markers else None
        self._blanks = TrailingBlanks()
        self._start: str | None = ""  # what has come of the answer while nothing is known about it
        self._inside: JsonCalls | None = None
        self._before = ""  # what stands before the JSON that is read

    def feed(self, text: str) -> list[Event]:
        events: list[Event] = []
        if self._start is not None:
            text = self._decide(self._start + text)
        while text:
            if self._inside is None:
                text = self._outside(text, events)
                continue
            found, text = self._inside.feed(text)
            events += found
            if self._inside.ended:
                if self._inside.started:
                    return events
                events.append(Content(self._blanks.feed(self._before + self._inside.take_raw())))
                self._inside = None
        return events

    def finish(self) -> list[Event]:
        if self._inside is not None:
            events = self._inside.finish()
            if self._inside.started:
                return events
            held = self._before + self._inside.take_raw()
        else:
            held = self._start or (self._search.release() if self._search else "")
        return [Content(self._blanks.release() + held)]

    def _decide(self, text: str) -> str:
        """What is to be read now, of the text from the answer's first word on."""
        bare = text.lstrip()
        self._blanks.feed(text[: len(text) - len(bare)])
        self._start = bare
        for lead in self._leads:
            if bare.startswith(lead):
                self._start = None
                self._enter(lead, self._known)
                return bare[len(lead) :]
        if not bare or any(lead.startswith(bare) for lead in self._leads):
            return ""
        self._start = None
        if bare[0] in "{[":
            self._enter("", self._known)
        return bare

    def _outside(self, text: str, events: list[Event]) -> str:
        if self._search is None:
            events.append(Content(self._blanks.feed(text)))
            return ""
        before, marker, text = self._search.feed(text)
        events.append(Content(self._blanks.feed(before)))
        if marker:
            self._enter(marker, None)
        return text

    def _enter(self, before: str, known: Set[str] | None) -> None:
        self._before = before
        self._inside = JsonCalls(self._calls, known)
