"""One choice's answer, delta by delta, as events."""

from __future__ import annotations

from collections.abc import Set
from dataclasses import dataclass

from octavo_gateway.api.engine import Delta
from octavo_gateway.api.parsers.events import Calls, Content, Event, Reasoning, Scanner, joined
from octavo_gateway.api.parsers.formats import HARMONY, TOOL_FORMATS, ReasoningFormat, ToolFormat
from octavo_gateway.api.parsers.harmony import HarmonyScanner
from octavo_gateway.api.parsers.think import PlainScanner, ThinkScanner

# Text is read in pieces of so many characters, so that what is copied at each marker stays small.
_PIECE = 1024


@dataclass(frozen=True)
class ParserSpec:
    """What the answers of one request are read for.

    Attributes:
        tools: the format of its calls, None: none are looked for.
        reasoning: that of its thoughts, None: none.
        known: the functions that can be called.
        opened: the prompt ends inside a thought.
    """

    tools: ToolFormat | None
    reasoning: ReasoningFormat | None
    known: Set[str] = frozenset()
    opened: bool = False

    @property
    def control(self) -> bool:
        """Control tokens must be part of the text."""
        return any(format is not None and format.control for format in (self.tools, self.reasoning))

    @property
    def pauses(self) -> list[tuple[str, str]]:
        """Between which marks stop strings are not looked for."""
        found = [p for format in (self.reasoning, self.tools) if format is not None for p in format.pauses]
        return list(dict.fromkeys(found))

    @property
    def starts_paused(self) -> bool:
        """The answer begins between the first of these marks."""
        reasoning = self.reasoning
        return reasoning is not None and (self.opened or reasoning.opened or reasoning.name == HARMONY)


class AnswerParser:
    """Reads the deltas of one choice.

    Attributes:
        called: a tool call was found.
        reasoning_tokens: tokens of the deltas that held thoughts.
    """

    def __init__(self, spec: ParserSpec) -> None:
        self._calls = Calls(spec.tools.new_call_id if spec.tools else TOOL_FORMATS[HARMONY].new_call_id)
        self._thinker: ThinkScanner | HarmonyScanner | None = None
        self._scanner = self._scanner_for(spec)
        self._counts = spec.reasoning is not None
        self.reasoning_tokens = 0

    @property
    def called(self) -> bool:
        return self._calls.count > 0

    def take(self, delta: Delta) -> list[Event]:
        """What one more delta brings; with its finish also what was held back."""
        thinker = self._thinker
        before = thinker is not None and thinker.thinking
        events: list[Event] = []
        text = delta.text
        for at in range(0, len(text), _PIECE):
            events += self._scanner.feed(text[at : at + _PIECE])
        thought = before or (thinker is not None and thinker.thinking)
        if self._counts and (thought or any(isinstance(event, Reasoning) for event in events)):
            self.reasoning_tokens += len(delta.token_ids)
        if delta.finish is not None:
            events += self._finish(cut=delta.finish != "stop")
        return joined(events)

    def _finish(self, cut: bool) -> list[Event]:
        """What was held back. The beginning of one more call that was cut is no text."""
        self._calls.cut = cut
        events = self._scanner.finish()
        if cut and self.called:
            return [event for event in events if not isinstance(event, Content)]
        return events

    def _scanner_for(self, spec: ParserSpec) -> Scanner:
        if any(format is not None and format.name == HARMONY for format in (spec.tools, spec.reasoning)):
            self._thinker = HarmonyScanner(self._calls, spec.known)
            return self._thinker
        answer = PlainScanner() if spec.tools is None else spec.tools.scanner(self._calls, spec.known)
        if spec.reasoning is None:
            return answer
        opened = spec.opened or spec.reasoning.opened
        self._thinker = ThinkScanner(spec.reasoning.opening, spec.reasoning.closing, answer, opened=opened)
        return self._thinker
