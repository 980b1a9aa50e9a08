"""The formats by name, and which one a model writes according to its chat template."""

from __future__ import annotations

import secrets
import string
from collections.abc import Callable, Set
from dataclasses import dataclass, replace
from typing import Protocol

from octavo.tool_prompt import HERMES, CallForm
from octavo_gateway.api.ids import new_id
from octavo_gateway.api.parsers.events import Calls, Scanner
from octavo_gateway.api.parsers.harmony import HarmonyScanner
from octavo_gateway.api.parsers.hermes import TaggedJsonScanner
from octavo_gateway.api.parsers.leading_json import LeadingJsonScanner
from octavo_gateway.api.parsers.mistral import MistralScanner
from octavo_gateway.api.parsers.pythonic import PythonicScanner


class _NewScanner(Protocol):
    def __call__(self, calls: Calls, known: Set[str]) -> Scanner: ...


def _openai_id() -> str:
    return new_id("call")


def _mistral_id() -> str:
    """Mistral's templates take nothing but nine letters and digits."""
    return "".join(secrets.choice(string.ascii_letters + string.digits) for _ in range(9))


@dataclass(frozen=True)
class ToolFormat:
    """How a model writes calls.

    Attributes:
        scanner: reads them; `known` are the functions of the request.
        form: one call, for models that are told how to write it and for output that is made to be one.
        opening, separator, closing: around and between the calls of such output; separator None: there is one.
        constrained: the format of such output where it is another.
        control: its markers are control tokens, which must then be part of the text.
        pauses: between these, stop strings are not looked for; an empty end is the end of the answer.
        new_call_id: an id for a call.
    """

    name: str
    scanner: _NewScanner
    form: CallForm = HERMES
    opening: str = ""
    separator: str | None = "\n"
    closing: str = ""
    constrained: str = ""
    control: bool = False
    pauses: tuple[tuple[str, str], ...] = ()
    new_call_id: Callable[[], str] = _openai_id

    @property
    def example(self) -> CallForm:
        """One call alone."""
        form = self.form
        return replace(form, before=self.opening + form.before, after=form.after + self.closing)


@dataclass(frozen=True)
class ReasoningFormat:
    """How a model writes thoughts.

    Attributes:
        opening, closing: the tags around one; "" where the harmony scanner finds them.
        opened: every answer begins inside a thought, whatever the prompt ends with.
        control: the tags are control tokens.
    """

    name: str
    opening: str
    closing: str
    opened: bool = False
    control: bool = False

    @property
    def pauses(self) -> tuple[tuple[str, str], ...]:
        return ((self.opening, self.closing),)


HARMONY = "harmony"
_JSON_ARGUMENTS = CallForm('{"name": ', ', "arguments": ', "}")
_JSON = CallForm('{"name": ', ', "parameters": ', "}")

TOOL_FORMATS = {
    f.name: f
    for f in (
        ToolFormat(
            "hermes",
            lambda calls, known: TaggedJsonScanner(calls, "<tool_call>", "</tool_call>"),
            pauses=(("<tool_call>", "</tool_call>"),),
        ),
        ToolFormat(
            "llama3_json",
            lambda calls, known: LeadingJsonScanner(calls, known, markers=("<|python_tag|>",)),
            form=_JSON,
            separator="; ",
            control=True,
            pauses=(("<|python_tag|>", ""),),
        ),
        ToolFormat("pythonic", PythonicScanner, form=_JSON, constrained="llama3_json", control=True),
        ToolFormat(
            "mistral",
            lambda calls, known: MistralScanner(calls),
            form=_JSON_ARGUMENTS,
            opening="[TOOL_CALLS][",
            separator=", ",
            closing="]",
            control=True,
            pauses=(("[TOOL_CALLS]", ""),),
            new_call_id=_mistral_id,
        ),
        ToolFormat(
            "mistral_named",
            lambda calls, known: MistralScanner(calls),
            form=CallForm("[TOOL_CALLS]", "[ARGS]", "", json_name=False),
            separator="",
            control=True,
            pauses=(("[TOOL_CALLS]", ""),),
            new_call_id=_mistral_id,
        ),
        ToolFormat(
            "gemma", lambda calls, known: LeadingJsonScanner(calls, known, leads=("```json",)), form=_JSON
        ),
        ToolFormat(
            "phi",
            lambda calls, known: LeadingJsonScanner(
                calls, known, markers=("<|tool_call|>",), leads=("functools",)
            ),
            form=_JSON_ARGUMENTS,
            opening="<|tool_call|>[",
            separator=", ",
            closing="]<|/tool_call|>",
            control=True,
            pauses=(("<|tool_call|>", "<|/tool_call|>"),),
        ),
        ToolFormat(
            HARMONY,
            HarmonyScanner,
            form=CallForm(
                "<|channel|>commentary to=functions.", " <|constrain|>json<|message|>", "", json_name=False
            ),
            separator=None,
            control=True,
        ),
    )
}

REASONING_FORMATS = {
    f.name: f
    for f in (
        ReasoningFormat("think", "<think>", "</think>"),
        ReasoningFormat("deepseek_r1", "<think>", "</think>", opened=True),
        ReasoningFormat("mistral", "[THINK]", "[/THINK]", control=True),
        ReasoningFormat(HARMONY, "<|start|>", "<|channel|>final", control=True),
    )
}

# Names that vLLM has for the same formats.
TOOL_ALIASES = {
    "llama4_json": "llama3_json",
    "llama4_pythonic": "pythonic",
    "phi4_mini_json": "phi",
    "openai": HARMONY,
}
REASONING_ALIASES = {"qwen3": "think", "openai_gptoss": HARMONY}

# What a template has that writes calls or thoughts in a format: the first that fits.
_TOOLS_BY_TEMPLATE = (
    ("<|channel|>", HARMONY),
    ("[ARGS]", "mistral_named"),
    ("[TOOL_CALLS]", "mistral"),
    ("<tool_call>", "hermes"),
    ("<|tool_call|>", "phi"),
    ("<|tool|>", "phi"),
    ("<|python_start|>", "pythonic"),
    ("func_name1(", "pythonic"),
    ("<|python_tag|>", "llama3_json"),
    ("ipython", "llama3_json"),
)
_REASONING_BY_TEMPLATE = (("<|channel|>", HARMONY), ("[THINK]", "mistral"), ("<think>", "think"))


def tool_format(name: str, template: str) -> ToolFormat:
    """The format called `name`; for "auto" that of the template, and Hermes' where it has none."""
    if name == "auto":
        name = next((format for part, format in _TOOLS_BY_TEMPLATE if part in template), "hermes")
    return TOOL_FORMATS[TOOL_ALIASES.get(name, name)]


def constrained_format(format: ToolFormat) -> ToolFormat:
    """The format of an answer that is made to be a call."""
    return TOOL_FORMATS[format.constrained or format.name]


def reasoning_format(name: str, template: str) -> ReasoningFormat | None:
    """The same of thoughts; None where the template knows none, or for "none"."""
    if name == "auto":
        name = next((format for part, format in _REASONING_BY_TEMPLATE if part in template), "none")
    return None if name == "none" else REASONING_FORMATS[REASONING_ALIASES.get(name, name)]
