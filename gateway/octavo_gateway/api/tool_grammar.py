"""The form of answers that are tool calls, or that may call tools or think before they have the form asked for."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from octavo.errors import InvalidArgumentError, OctavoError
from octavo.structured import GrammarSpec, schema
from octavo_gateway.api.parsers.formats import HARMONY, ReasoningFormat, ToolFormat
from octavo_gateway.api.structure import Structure
from octavo_gateway.api.tools import ToolUse
from octavo_gateway.protocol.tools import FunctionDefinition

MAX_CALLS = 16  # in an answer that has a form
_ROOTS = ("$ref", "anyOf", "oneOf", "allOf", "enum", "const", "patternProperties")
_MARK = re.compile(r"(<\|[^|]*\|>|\[/?[A-Z_]+\]|</?[a-z_]+>)")
_BLANKS = r"(/[ \t\r\n]{1,8}/)?"  # behind a thought
_ANY = "/(?s:.*)/"
_FINAL = "<|channel|>final<|message|>"


@dataclass(frozen=True)
class Thoughts:
    """What may stand before the form begins.

    Attributes:
        format: how the model writes thoughts, None: it has none.
        opened: the prompt ends inside one.
        control: the id of the control token that is written so; None: the text is made of other tokens.
    """

    format: ReasoningFormat | None
    opened: bool
    control: Callable[[str], int | None]

    def before(self, start: str, rules: Sequence[str]) -> GrammarSpec:
        """`start`, behind the thought that the prompt has opened or that the model may begin with."""
        format = self.format
        if format is None:
            return _lark(start, rules)
        if format.name == HARMONY:
            analysis = self.literal("<|channel|>analysis<|message|>")
            ends = self._ends("<|end|>", self.literal("<|start|>assistant"))
            return _lark(f"thought? {start}", [*rules, f"thought: {analysis} thought_end", *ends])
        if self.opened or format.opened:
            return _lark(f"{_BLANKS} {start}", rules).after(format.closing)
        ends = self._ends(format.closing, _BLANKS)
        return _lark(
            f"thought? {start}", [*rules, f"thought: {self.literal(format.opening)} thought_end", *ends]
        )

    def _ends(self, mark: str, then: str) -> list[str]:
        """The rules of anything up to a mark."""
        if self.control(mark) is not None:
            return [f"thought_end: {_ANY} {self.literal(mark)} {then}"]
        return [f"thought_end: thought_text {then}", f"thought_text[suffix={json.dumps(mark)}]: {_ANY}"]

    def before_spec(self, spec: GrammarSpec) -> GrammarSpec:
        """The same for any grammar. One that is written out begins at once where no thought is certain."""
        format = self.format
        if format is None:
            return spec
        if format.name == HARMONY:
            return spec.after(_FINAL)
        term = _term(spec)
        if term is not None:
            return self.before(term, [])
        return spec.after(format.closing) if self.opened or format.opened else spec

    def literal(self, text: str) -> str:
        """The text as terms of a grammar, control tokens as such."""
        terms: list[str] = []
        plain = ""
        for part in _MARK.split(text):
            token = self.control(part) if _MARK.fullmatch(part) else None
            if token is None:
                plain += part
                continue
            terms += [json.dumps(plain, ensure_ascii=False)] if plain else []
            terms.append(f"<[{token}]>")
            plain = ""
        terms += [json.dumps(plain, ensure_ascii=False)] if plain else []
        return " ".join(terms)


def answer_structure(
    asked: Structure | None, tools: ToolUse, format: ToolFormat, thoughts: Thoughts
) -> Structure | None:
    """The form of the whole answer: calls where they are required, else what was `asked` for or calls."""
    if tools.required:
        return Structure(lambda: calls_grammar(tools, format, thoughts), "tools")
    if asked is None:
        return None
    if not tools.callable:
        return Structure(lambda: thoughts.before_spec(asked.spec()), asked.param)
    return Structure(lambda: _calls_or(asked.spec(), tools, format, thoughts), asked.param)


def calls_grammar(tools: ToolUse, format: ToolFormat, thoughts: Thoughts) -> GrammarSpec:
    """Calls whose arguments fit their schemas, in `format`.

    Raises:
        InvalidArgumentError: the parameters of a function are no schema of an object.
    """
    return thoughts.before(*_calls(tools, format, thoughts))


def _calls_or(spec: GrammarSpec, tools: ToolUse, format: ToolFormat, thoughts: Thoughts) -> GrammarSpec:
    term = _term(spec)
    if term is None:
        return thoughts.before_spec(spec)
    calls, rules = _calls(tools, format, thoughts)
    if format.name == HARMONY:
        term = f"{thoughts.literal(_FINAL)} {term}"
    return thoughts.before("answer", [f"answer: {calls}", f"    | {term}", *rules])


def _calls(tools: ToolUse, format: ToolFormat, thoughts: Thoughts) -> tuple[str, list[str]]:
    names = " | ".join(f"call_{i}" for i in range(len(tools.callable)))
    calls = f"( {names} )"
    if tools.several and format.separator is not None:
        separator = thoughts.literal(format.separator)
        calls += f" ( {separator} ( {names} ) ){{0,{MAX_CALLS - 1}}}"
    parts = (thoughts.literal(format.opening), calls, thoughts.literal(format.closing))
    rules = [
        rule for i, function in enumerate(tools.callable) for rule in _call(i, function, format, thoughts)
    ]
    return " ".join(part for part in parts if part), rules


def _call(index: int, function: FunctionDefinition, format: ToolFormat, thoughts: Thoughts) -> list[str]:
    form = format.form
    before = thoughts.literal(form.before + form.name(function.name) + form.between)
    after = thoughts.literal(form.after)
    return [
        f"call_{index}: {before} arguments_{index} {after}",
        f"arguments_{index}: %json {_arguments(function)}",
    ]


def _arguments(function: FunctionDefinition) -> str:
    where = f"the parameters of {function.name}"
    given: dict[str, Any] = function.parameters or {"properties": {}}
    if given.get("type", "object") != "object":
        raise InvalidArgumentError(f"{where} must have the type object", param="grammar")
    if not any(key in given for key in _ROOTS):
        # Nobody who declares parameters means others, too.
        given = {"additionalProperties": False, **given, "type": "object"}
    try:
        return schema.prepared(given, schema.WHITESPACE)
    except OctavoError as e:
        raise InvalidArgumentError(f"{where}: {str(e).removeprefix('json: ')}", param="grammar") from None


def _lark(start: str, rules: Sequence[str]) -> GrammarSpec:
    return GrammarSpec("lark", "\n".join((f"start: {start}", *rules, "")))


def _term(spec: GrammarSpec) -> str | None:
    """A grammar as a term of another, None where it cannot be one."""
    if spec.kind == "json_schema":
        return f"%json {spec.text}"
    if spec.kind == "regex" and "/" not in spec.text and "\n" not in spec.text:
        return f"/{spec.text}/"
    return None
