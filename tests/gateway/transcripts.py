"""What models write, in each format, and what is in it."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from scripted import Delta, Script, ScriptedEngine, spoken

from octavo_gateway.api.engine import ModelInfo
from octavo_gateway.api.parsers.answer_parser import AnswerParser, ParserSpec
from octavo_gateway.api.parsers.events import CallArguments, CallStart, Content, Event, Reasoning
from octavo_gateway.api.parsers.formats import reasoning_format, tool_format

KNOWN = frozenset({"get_weather", "add", "now"})


@dataclass
class Found:
    content: str = ""
    reasoning: str = ""
    calls: list[tuple[str, str]] = field(default_factory=list)


@dataclass
class Transcript:
    tools: str
    text: str
    found: Found
    reasoning: str = "none"
    opened: bool = False


def parser(tools: str = "", reasoning: str = "none", opened: bool = False) -> AnswerParser:
    return AnswerParser(
        ParserSpec(
            tool_format(tools, "") if tools else None, reasoning_format(reasoning, ""), KNOWN, opened=opened
        )
    )


def events_of(parser: AnswerParser, pieces: list[str]) -> list[list[Event]]:
    deltas = [Delta(text=piece, token_ids=[0]) for piece in pieces]
    deltas.append(Delta(finish="stop"))
    return [parser.take(delta) for delta in deltas]


def collect(batches: list[list[Event]]) -> Found:
    """The events put together; each call must be started once, in order, with a new id, before its arguments."""
    found = Found()
    ids: set[str] = set()
    for event in (event for batch in batches for event in batch):
        match event:
            case Content(text):
                assert text
                found.content += text
            case Reasoning(text):
                assert text
                found.reasoning += text
            case CallStart(index, id, name):
                assert index == len(found.calls) and id and id not in ids
                ids.add(id)
                found.calls.append((name, ""))
            case CallArguments(index, text):
                assert text and index == len(found.calls) - 1
                found.calls[index] = (found.calls[index][0], found.calls[index][1] + text)
    return found


def read(transcript: Transcript, pieces: list[str]) -> Found:
    return collect(events_of(parser(transcript.tools, transcript.reasoning, transcript.opened), pieces))


CITY = '{"city": "Zürich \\"\\u00fc\\" }</tool_call>", "days": [1, {"n": null}]}'
SUM = '{"a": 1, "b": -2.5e3}'
WEATHER, ADD, NOW = ("get_weather", CITY), ("add", SUM), ("now", "{}")


def _json(name: str, arguments: str, key: str = "arguments") -> str:
    return f'{{"name": {json.dumps(name)}, "{key}": {arguments}}}'


def _hermes(*calls: tuple[str, str]) -> str:
    return "\n".join(f"<tool_call>\n{_json(*call)}\n</tool_call>" for call in calls)


_PYTHONIC = (
    r"""[get_weather(city='Zürich "ü" \'x\' \n]', days=[1, {'n': None, "t": (True, False,)}]), """
    "add(a=1, b=-2.5), now()]"
)
_PYTHONIC_CALLS = [
    ("get_weather", r'''{"city": "Zürich \"ü\" 'x' \n]", "days": [1, {"n": null, "t": [true, false]}]}'''),
    ("add", '{"a": 1, "b": -2.5}'),
    NOW,
]  # fmt: skip
_HARMONY = (
    "<|channel|>analysis<|message|>The user wants <b>.<|end|><|start|>assistant<|channel|>commentary"
    "<|message|>Let me look.<|end|><|start|>assistant<|channel|>commentary to=functions.get_weather "
    f"<|constrain|>json<|message|>{CITY}"
)

TRANSCRIPTS = {
    "plain": Transcript("hermes", "Just  text \n < tool_call> <tool", Found("Just  text \n < tool_call> <tool")),
    "blank": Transcript("hermes", " \n", Found(" \n")),
    "hermes": Transcript("hermes", _hermes(WEATHER), Found(calls=[WEATHER])),
    "hermes two": Transcript(
        "hermes", "Sure.\n\n" + _hermes(WEATHER, ADD) + "\n", Found("Sure.", calls=[WEATHER, ADD])
    ),
    "hermes text between": Transcript(
        "hermes", _hermes(ADD) + " and " + _hermes(NOW), Found(" and", calls=[ADD, NOW])
    ),
    "hermes list": Transcript(
        "hermes", f"<tool_call>[{_json(*WEATHER)}, {_json(*ADD)}]</tool_call>", Found(calls=[WEATHER, ADD])
    ),
    "hermes arguments first": Transcript(
        "hermes", f'<tool_call>{{"arguments": {CITY}, "name": "get_weather"}}</tool_call>', Found(calls=[WEATHER])
    ),
    "hermes quoted arguments": Transcript(
        "hermes", f'<tool_call>{_json("add", json.dumps(SUM))}</tool_call>', Found(calls=[ADD])
    ),
    "hermes without arguments": Transcript(
        "hermes",
        '<tool_call>{"name": "now"}</tool_call><tool_call>{"name": "now", "arguments": null}</tool_call>',
        Found(calls=[NOW, NOW]),
    ),
    "hermes brace missing": Transcript(
        "hermes", f'<tool_call>{_json(*ADD)[:-1]}\n</tool_call>{_hermes(NOW)}', Found(calls=[ADD, NOW])
    ),
    "hermes end tag missing": Transcript(
        "hermes", f"<tool_call>{_json(*ADD)}\n<tool_call>{_json(*WEATHER)}", Found(calls=[ADD, WEATHER])
    ),
    "hermes cut": Transcript(
        "hermes", '<tool_call>{"name": "add", "arguments": {"a": 1', Found(calls=[("add", '{"a": 1')])
    ),
    "hermes cut in a tag": Transcript("hermes", _hermes(ADD) + "\n<tool", Found(calls=[ADD])),
    "hermes cut before the name": Transcript("hermes", '<tool_call> {"na', Found('<tool_call> {"na')),
    "hermes no call": Transcript(
        "hermes", "a <tool_call> none </tool_call> b", Found("a <tool_call> none </tool_call> b")
    ),
    "llama": Transcript("llama3_json", _json(*WEATHER, "parameters"), Found(calls=[WEATHER])),
    "llama two": Transcript(
        "llama3_json", f"\n{_json(*WEATHER, 'parameters')}; {_json(*ADD, 'parameters')}", Found(calls=[WEATHER, ADD])
    ),
    "llama tag": Transcript("llama3_json", "Hm.<|python_tag|>" + _json(*ADD, "parameters"), Found("Hm.", calls=[ADD])),
    "llama json": Transcript("llama3_json", ' {"name": "Bob", "a": 1} ', Found(' {"name": "Bob", "a": 1} ')),
    "llama text": Transcript("llama3_json", "It is " + _json(*ADD), Found("It is " + _json(*ADD))),
    "pythonic": Transcript("pythonic", _PYTHONIC, Found(calls=_PYTHONIC_CALLS)),
    "pythonic tag": Transcript("pythonic", "<|python_start|>[now()]<|python_end|>", Found(calls=[NOW])),
    "pythonic text": Transcript("pythonic", "[1] says so", Found("[1] says so")),
    "pythonic unknown": Transcript("pythonic", " [print(x=1)]", Found(" [print(x=1)]")),
    "mistral": Transcript("mistral", f"[TOOL_CALLS] [{_json(*WEATHER)}, {_json(*ADD)}]", Found(calls=[WEATHER, ADD])),
    "mistral named": Transcript(
        "mistral",
        f"Ok.[TOOL_CALLS]get_weather[ARGS]{CITY}[TOOL_CALLS]add[CALL_ID]a1B2c3D4e[ARGS] {SUM}[TOOL_CALLS]now{{}}",
        Found("Ok.", calls=[WEATHER, ADD, NOW]),
    ),
    "gemma": Transcript("gemma", f"```json\n{_json(*WEATHER, 'parameters')}\n```", Found(calls=[WEATHER])),
    "gemma text": Transcript("gemma", "```js\nx\n```\n", Found("```js\nx\n```\n")),
    "phi": Transcript(
        "phi", f"<|tool_call|>[{_json(*WEATHER)}, {_json(*ADD)}]<|/tool_call|>", Found(calls=[WEATHER, ADD])
    ),
    "phi functools": Transcript("phi", f"functools[{_json(*ADD)}]", Found(calls=[ADD])),
    "think": Transcript(
        "hermes", f"<think>\nWhy {_hermes(NOW)}?\n</think>\n\nHi.{_hermes(ADD)}",
        Found("Hi.", f"Why {_hermes(NOW)}?", [ADD]), reasoning="think",
    ),
    "think opened": Transcript("", "a </thin b\n</think>\nc", Found("c", "a </thin b"), "think", opened=True),
    "think not": Transcript("", " <thin <think> x", Found(" <thin <think> x"), "think"),
    "think cut": Transcript("", "<think>a </thi", Found("", "a </thi"), "think"),
    "think always": Transcript("", "a</think>b", Found("b", "a"), "deepseek_r1"),
    "think nothing": Transcript("", "<think>\n\n</think>\n\n\n b", Found("b"), "think"),
    "harmony": Transcript(
        "harmony", _HARMONY, Found("Let me look.", "The user wants <b>.", [WEATHER]), reasoning="harmony"
    ),
    "harmony final": Transcript(
        "", "<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>final<|message|>b < c",
        Found("b < c", "a"), reasoning="harmony",
    ),
    "harmony recipient first": Transcript(
        "harmony", " to=functions.now<|channel|>commentary json<|message|>", Found(calls=[NOW]), reasoning="harmony"
    ),
    "harmony text": Transcript("harmony", "<|x plain", Found("<|x plain"), reasoning="harmony"),
}  # fmt: skip

TOOLS = [
    {"type": "function", "function": {"name": name, "parameters": {"type": "object"}}}
    for name in ("get_weather", "add", "now")
]
TWO = TRANSCRIPTS["hermes two"].text
THOUGHT = TRANSCRIPTS["think"].text


def saying(text: str, template: str = "<tool_call>", *, cut: int = 0, **script: Any) -> ScriptedEngine:
    """An engine that says `text`: a character per step, or two steps cut at `cut`."""
    steps = [([0], text[:cut]), ([0], text[cut:])] if cut else spoken(text)
    model = ModelInfo("scripted", 4096, {}, {"block_size": 16, "num_blocks": 64}, chat_template=template)
    return ScriptedEngine(Script(steps=steps, **script), model=model)


def message_of(chunks: Sequence[dict[str, Any]], index: int = 0) -> dict[str, Any]:
    """The streamed message put together, each delta of a call checked for its shape."""
    message: dict[str, Any] = {"content": "", "reasoning": "", "tool_calls": []}
    finishes = []
    for choice in (c for chunk in chunks for c in chunk["choices"] if c["index"] == index):
        delta = choice["delta"]
        assert set(delta) <= {"role", "content", "reasoning", "reasoning_content", "tool_calls"}
        message["content"] += delta.get("content", "")
        message["reasoning"] += delta.get("reasoning", "")
        assert delta.get("reasoning") == delta.get("reasoning_content")
        for call in delta.get("tool_calls", ()):
            calls = message["tool_calls"]
            if call["index"] == len(calls):
                assert set(call) == {"index", "id", "type", "function"} and call["type"] == "function"
                assert call["function"]["name"] and call["function"]["arguments"] == ""
                calls.append({"id": call["id"], "type": "function", "function": dict(call["function"])})
            else:
                assert set(call) == {"index", "function"} and set(call["function"]) == {"arguments"}
                assert call["index"] == len(calls) - 1 and call["function"]["arguments"]
                calls[-1]["function"]["arguments"] += call["function"]["arguments"]
        if choice["finish_reason"] is not None:
            finishes.append(choice["finish_reason"])
    assert len(finishes) == 1
    return {**message, "finish_reason": finishes[0]}
