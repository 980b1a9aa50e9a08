"""What is compiled: a kind of grammar, its text, and after what it begins."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from octavo import checks
from octavo.errors import InvalidArgumentError
from octavo.structured import schema
from octavo.structured.forced_runs import may_force_long

MAX_GBNF = 2**16  # characters: rewriting it takes time with their square
KINDS = ("json_schema", "regex", "lark", "llguidance")


@dataclass(frozen=True)
class GrammarSpec:
    """A grammar before it is compiled; equal ones are compiled once.

    Attributes:
        kind: "json_schema", "regex" (Rust's syntax, the whole text must match), "lark" (llguidance's dialect: special
            tokens as ``<|name|>`` or ``<[id]>``, ``%json {...}`` inside rules) or "llguidance" (its JSON form).
        text: the grammar.
        start_after: text behind which it begins, such as ``"</think>"``. Until then anything but an end of the
            text may be generated; blanks right after it belong to it. Empty: at once.
        forcing: text that it leaves no choice about is appended without sampling it.
    """

    kind: str
    text: str
    start_after: str = ""
    forcing: bool = field(init=False, compare=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "forcing", not may_force_long(self.kind, self.text))
        if self.kind not in KINDS:
            raise checks.invalid("kind", self.kind, f"one of {', '.join(KINDS)}")

    def after(self, marker: str) -> GrammarSpec:
        """The same for what follows ``marker``."""
        return replace(self, start_after=marker)


def json_schema(given: Any, *, whitespace: str | None = schema.WHITESPACE) -> GrammarSpec:
    """A JSON document that fits a schema, which is a map or JSON text.

    Args:
        whitespace: what may stand between its parts (a regular expression); None: nothing.
    """
    return GrammarSpec("json_schema", schema.prepared(given, whitespace))


def regex(pattern: Any) -> GrammarSpec:
    """A text that matches the pattern as a whole."""
    if not isinstance(pattern, str) or not pattern:
        raise checks.invalid("regex", pattern, "a pattern that is not empty")
    return GrammarSpec("regex", checks.unicode_text("regex", pattern))


def choice(options: Any) -> GrammarSpec:
    """One of the options, as it stands."""
    if isinstance(options, str) or not isinstance(options, Sequence) or not options:
        raise checks.invalid("choice", options, "a list of at least one string")
    texts = checks.strings("choice", list(options))
    quoted = (json.dumps(text, ensure_ascii=False) for text in dict.fromkeys(texts))
    # One terminal: as alternatives of a rule each would be an item of the parser, of which there may be 2,000.
    return GrammarSpec("lark", "start: CHOICE\nCHOICE: " + "\n    | ".join(quoted))


def grammar(text: Any) -> GrammarSpec:
    """A context-free grammar: Lark, GBNF (``root ::= ...``) or llguidance's JSON."""
    if not isinstance(text, str) or not text.strip():
        raise checks.invalid("grammar", text, "the text of a grammar")
    checks.unicode_text("grammar", text)
    if text.lstrip().startswith("{"):
        return GrammarSpec("llguidance", text)
    schema.check_embedded(text)
    if "::=" not in text:
        return GrammarSpec("lark", text)
    if len(text) > MAX_GBNF:
        raise InvalidArgumentError(
            f"grammar has {len(text)} characters, GBNF at most {MAX_GBNF}: write it in Lark's syntax",
            param="grammar",
        )
    from llguidance.gbnf_to_lark import any_to_lark

    try:
        return GrammarSpec("lark", any_to_lark(text))
    except Exception as error:
        raise InvalidArgumentError(f"grammar is not valid GBNF: {error}", param="grammar") from error


def structural_tag(given: Any) -> GrammarSpec:
    """Free text with tagged parts that fit schemas: ``{"structures": [{"begin", "schema", "end"}], "triggers"}``."""
    from llguidance import StructTag

    tag = schema.parsed(given, "structural_tag")
    structures, triggers = tag.get("structures"), tag.get("triggers")
    if not isinstance(structures, list) or not structures or not isinstance(triggers, list):
        raise InvalidArgumentError(
            "structural_tag must have a list of structures and a list of triggers", param="structural_tag"
        )
    tags = []
    for one in structures:
        begin = str(one.get("begin", "")) if isinstance(one, dict) else ""
        trigger = next((t for t in triggers if isinstance(t, str) and t and begin.startswith(t)), None)
        if trigger is None or not isinstance(one.get("end", ""), str):
            raise InvalidArgumentError(
                "structural_tag: each structure needs a begin that starts with a trigger, and an end that is a string",
                param="structural_tag",
            )
        body = schema.prepared(one.get("schema", {}), schema.WHITESPACE)
        tags.append(StructTag(trigger=trigger, begin=begin, grammar=body, end=one.get("end", "")))
    return GrammarSpec("lark", StructTag.to_grammar(tags, assume_special=False))
