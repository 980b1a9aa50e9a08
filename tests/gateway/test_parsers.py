"""Every format's scanner finds the same in a text however it is cut, in time that grows with its length alone."""

from __future__ import annotations

import itertools
import json
import time
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scripted import Delta
from transcripts import KNOWN, TRANSCRIPTS, Found, Transcript, collect, events_of, parser, read

from octavo_gateway.api.parsers.formats import (
    REASONING_FORMATS,
    TOOL_FORMATS,
    reasoning_format,
    tool_format,
)


@pytest.mark.parametrize("name", TRANSCRIPTS)
def test_every_split_of_a_transcript_gives_the_same(name: str) -> None:
    """Behaviours 41, 72 and 73."""
    transcript = TRANSCRIPTS[name]
    text = transcript.text
    assert read(transcript, [text]) == transcript.found
    assert read(transcript, list(text)) == transcript.found
    for at in range(1, len(text)):
        assert read(transcript, [text[:at], text[at:]]) == transcript.found, (text[:at], text[at:])
    for size in (2, 3, 7):
        pieces = [text[i : i + size] for i in range(0, len(text), size)]
        assert read(transcript, pieces) == transcript.found


_VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.text(max_size=8)
    | st.sampled_from(["</tool_call>", "]", "'"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
_ARGUMENTS = st.dictionaries(st.from_regex(r"[a-z_]{1,6}", fullmatch=True), _VALUES, max_size=4)
_CALLS = st.lists(st.tuples(st.sampled_from(sorted(KNOWN)), _ARGUMENTS), min_size=1, max_size=3)


def _written(format: str, calls: list[tuple[str, dict[str, Any]]], ascii: bool) -> str:
    """The calls as the format's definition has them."""
    key = "parameters" if format in ("llama3_json", "gemma") else "arguments"
    objects = [json.dumps({"name": name, key: arguments}, ensure_ascii=ascii) for name, arguments in calls]
    match format:
        case "hermes":
            return "\n".join(f"<tool_call>\n{o}\n</tool_call>" for o in objects)
        case "llama3_json":
            return "; ".join(objects)
        case "gemma":
            return f"```json\n[{', '.join(objects)}]\n```"
        case "phi":
            return f"<|tool_call|>[{', '.join(objects)}]<|/tool_call|>"
        case "mistral":
            return f"[TOOL_CALLS][{', '.join(objects)}]"
        case "mistral_named":
            return "".join(f"[TOOL_CALLS]{n}[ARGS]{json.dumps(a, ensure_ascii=ascii)}" for n, a in calls)
        case "harmony":
            head = "<|start|>assistant<|channel|>commentary to=functions.{} <|constrain|>json<|message|>{}<|call|>"
            return "".join(head.format(n, json.dumps(a, ensure_ascii=ascii)) for n, a in calls)
    written = ", ".join(f"{n}({', '.join(f'{k}={v!r}' for k, v in a.items())})" for n, a in calls)
    return f"[{written}]"


@pytest.mark.parametrize("format", TOOL_FORMATS)
@settings(max_examples=30, deadline=None)
@given(calls=_CALLS, ascii=st.booleans(), cuts=st.lists(st.integers(0, 400), max_size=6))
def test_calls_survive_being_written_and_cut(
    format: str, calls: list[tuple[str, dict[str, Any]]], ascii: bool, cuts: list[int]
) -> None:
    text = _written(format, calls, ascii)
    edges = sorted({0, len(text), *(cut % len(text) for cut in cuts)})
    pieces = [text[a:b] for a, b in itertools.pairwise(edges)]
    found = read(Transcript(format, text, Found()), pieces)
    assert found.content == "" and found.reasoning == ""
    assert [(name, json.loads(arguments)) for name, arguments in found.calls] == calls


_HALF_OPEN = {
    "hermes": "<tool_call>",
    "llama3_json": "<|python_tag|>{",
    "pythonic": "[now(x=",
    "mistral": "[TOOL_CALLS][{",
    "mistral_named": "[TOOL_CALLS]a[ARGS]{",
    "gemma": '```json{"name"',
    "phi": "<|tool_call|>[",
    "harmony": "<|channel|>",
}


@pytest.mark.unsanitized("measures time")
@pytest.mark.parametrize(
    "format",
    [
        pytest.param(name, marks=[] if name in ("pythonic", "phi", "harmony") else [pytest.mark.slow])
        for name in TOOL_FORMATS
    ],
)
def test_half_open_markers_cost_linear_time(format: str) -> None:
    """Behaviour 65: 500 KB at once, and half of it in small pieces."""
    text = _HALF_OPEN[format] * (500_000 // len(_HALF_OPEN[format]))
    pieces = [text[i : i + 50] for i in range(0, len(text) // 2, 50)]
    for fed in ([text], pieces):
        began = time.process_time()
        events_of(parser(format, "think"), fed)
        assert time.process_time() - began < 3


def test_reasoning_tokens_are_those_of_the_thought() -> None:
    for spec, pieces, tokens in (
        ({"reasoning": "think"}, ["<think>", "a", " b", "</think>", "c", "d"], 4),
        ({"reasoning": "think", "opened": True}, ["a", " b", "</think>", "c"], 3),
        ({"reasoning": "think"}, ["<think>a</think>", "c"], 1),
        ({"reasoning": "think"}, ["c", "d"], 0),
        ({"reasoning": "none"}, ["<think>", "a"], 0),
        (
            {"reasoning": "harmony"},
            ["<|channel|>", "analysis", "<|message|>", "a", "<|end|>", "<|start|>"],
            3,
        ),
    ):
        read = parser(**spec)
        events_of(read, pieces)
        assert read.reasoning_tokens == tokens, pieces


def test_a_thought_streams_before_it_ends() -> None:
    batches = events_of(parser("hermes", "think"), ["<think>", "a", " b", "</think>", "\n\n", "c", " d"])
    assert [bool(batch) for batch in batches] == [False, True, True, False, False, True, True, False]


def test_arguments_stream_as_they_come() -> None:
    batches = events_of(
        parser("hermes"), ["<tool_call>", '{"name": "add"', ', "arguments": ', '{"a"', ": 1}", "}"]
    )
    assert [bool(batch) for batch in batches] == [False, True, False, True, True, False, False]
    assert collect(batches).calls == [("add", '{"a": 1}')]


@pytest.mark.parametrize(
    ("template", "tools", "reasoning"),
    [
        ("{{ '<|im_start|>' }}", "hermes", None),
        ("'<tool_call>' … '<think>'", "hermes", "think"),
        ("[AVAILABLE_TOOLS][TOOL_CALLS]", "mistral", None),
        ("[TOOL_CALLS][ARGS]", "mistral_named", None),
        ("<|python_tag|>", "llama3_json", None),
        ("<|start|>assistant<|channel|>", "harmony", "harmony"),
        ("<|tool|>", "phi", None),
    ],
)
def test_the_template_tells_the_format(template: str, tools: str, reasoning: str | None) -> None:
    assert tool_format("auto", template).name == tools
    found = reasoning_format("auto", template)
    assert (found.name if found else None) == reasoning


def test_formats_have_the_names_of_vllm_too() -> None:
    for name in (
        "hermes",
        "llama3_json",
        "llama4_pythonic",
        "pythonic",
        "mistral",
        "phi4_mini_json",
        "openai",
    ):
        assert tool_format(name, "").name in TOOL_FORMATS
    for name in ("qwen3", "deepseek_r1", "mistral", "openai_gptoss"):
        found = reasoning_format(name, "")
        assert found is not None and found.name in REASONING_FORMATS


@pytest.mark.parametrize("format", TOOL_FORMATS)
def test_a_cut_answer_holds_what_was_written_and_no_raw_calls(format: str) -> None:
    """Wherever it is cut: whole calls, then at most one whose arguments are a beginning of those that it would have."""
    text = _written(format, [("add", {"a": 1, "b": "xy"}), ("get_weather", {"city": "Z"})], ascii=False)
    whole = collect(events_of(parser(format), [text])).calls
    for at in range(len(text)):
        found = collect([parser_.take(delta) for parser_ in [parser(format)] for delta in _cut(text[:at])])
        assert [name for name, _ in found.calls] == [name for name, _ in whole][: len(found.calls)]
        for (_, written), (_, arguments) in zip(found.calls, whole, strict=False):
            assert arguments.startswith(written), text[:at]
        assert not found.calls or not found.content.strip(), text[:at]


def _cut(text: str) -> list[Delta]:
    return [Delta(text=text, token_ids=[0]), Delta(finish="length")]
