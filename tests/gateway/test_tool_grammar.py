"""Grammars of calls and of scanners agree: what a grammar lets through is read as calls that fit their schemas."""

from __future__ import annotations

import json
import random
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from transcripts import collect, events_of

from octavo import _engine
from octavo.structured import GrammarCompiler
from octavo.structured import spec as specs
from octavo.tokenizer import Tokenizer, from_gguf
from octavo_gateway.api.parsers.answer_parser import AnswerParser, ParserSpec
from octavo_gateway.api.parsers.formats import (
    TOOL_FORMATS,
    constrained_format,
    reasoning_format,
    tool_format,
)
from octavo_gateway.api.structure import Structure
from octavo_gateway.api.tool_grammar import Thoughts, answer_structure
from octavo_gateway.api.tools import ToolUse
from octavo_gateway.protocol.tools import FunctionDefinition

SCHEMAS: dict[str, dict[str, Any]] = {
    "paint": {
        "type": "object",
        "properties": {"color": {"enum": ["red", 'a "b"\n']}, "spots": {"$ref": "#/$defs/spots"}},
        "required": ["color"],
        "$defs": {"spots": {"type": "array", "items": {"type": "boolean"}, "maxItems": 2}},
    },
    "now": {},
}
FUNCTIONS = [FunctionDefinition(name=name, parameters=schema or None) for name, schema in SCHEMAS.items()]
REASONING = {"none": None, "think": reasoning_format("think", ""), "harmony": reasoning_format("harmony", "")}


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Tokenizer:
    return from_gguf(_engine.GgufFile(str(smollm2)).metadata())


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> GrammarCompiler:
    return GrammarCompiler(tokenizer, tokenizer.vocab_size, [2])


def allowed(mask: Any) -> list[int]:
    ids: list[int] = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little")).tolist()
    return ids


class Walk:
    """Tokens drawn at random from what a grammar allows."""

    def __init__(self, compiler: GrammarCompiler, tokenizer: Tokenizer, structure: Structure | None) -> None:
        assert structure is not None
        self.grammar = compiler.compile(structure.spec()).native
        self.tokenizer = tokenizer

    def accepts(self, text: str) -> bool:
        """Whether the text can be written, and be all there is."""
        constraint = self.grammar.start()
        for token in self.tokenizer.encode(text, add_special_tokens=False):
            mask = constraint.fill_mask(self.tokenizer.vocab_size)
            if not int(mask[token // 32]) >> (token % 32) & 1:
                return False
            constraint.accept(token)
        mask = constraint.fill_mask(self.tokenizer.vocab_size)
        return bool(int(mask[0]) >> 2 & 1)

    def text(self, seed: int, prefix: str = "") -> str:
        draw = random.Random(seed)
        constraint = self.grammar.start()
        ids = self.tokenizer.encode(prefix, add_special_tokens=False)
        for token in ids:
            constraint.accept(token)
        while len(ids) < 400:
            choices = allowed(constraint.fill_mask(self.tokenizer.vocab_size))
            token = 2 if 2 in choices else draw.choice(choices)
            if token == 2:
                return self.tokenizer.decode(ids, skip_special_tokens=False)
            ids.append(token)
            constraint.accept(token)
        raise AssertionError("the text does not end")


def use(*, several: bool = True, required: bool = True) -> ToolUse:
    return ToolUse((), FUNCTIONS, required=required, several=several)


@pytest.mark.parametrize("name", TOOL_FORMATS)
@pytest.mark.parametrize("reasoning", ["none", "think"])
def test_what_the_grammar_lets_through_is_calls(
    compiler: GrammarCompiler, tokenizer: Tokenizer, name: str, reasoning: str
) -> None:
    format = constrained_format(tool_format(name, ""))
    thinks = REASONING["harmony"] if reasoning == "think" and name == "harmony" else REASONING[reasoning]
    walk = Walk(
        compiler,
        tokenizer,
        answer_structure(None, use(), format, Thoughts(thinks, False, lambda text: None)),
    )
    thought = "" if thinks is None else "<think>\nHm <b> {\n</think>\n\n"
    if name == "harmony" and thought:
        thought = "<|channel|>analysis<|message|>Hm <b> {<|end|><|start|>assistant"
    for seed in range(6):
        text = walk.text(seed, thought)
        parser = AnswerParser(ParserSpec(format, thinks, frozenset(SCHEMAS)))
        found = collect(events_of(parser, [text]))
        assert found.content == "" and found.calls and bool(found.reasoning) == bool(thought), text
        for called, arguments in found.calls:
            jsonschema.validate(json.loads(arguments), SCHEMAS[called])
            assert set(json.loads(arguments)) <= set(SCHEMAS[called].get("properties", ()))


CALL = '<tool_call>\n{"name": "now", "arguments": {}}\n</tool_call>'


def test_one_call_or_several(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    free = Thoughts(None, False, lambda text: None)
    hermes = tool_format("hermes", "")
    one = Walk(compiler, tokenizer, answer_structure(None, use(several=False), hermes, free))
    some = Walk(compiler, tokenizer, answer_structure(None, use(), hermes, free))
    assert one.accepts(CALL) and some.accepts(CALL)
    assert some.accepts(f"{CALL}\n{CALL}") and not one.accepts(f"{CALL}\n{CALL}")
    assert not some.accepts(CALL.replace("now", "other")) and not some.accepts("Hi")
    assert not some.accepts(CALL.replace("{}", '{"a": 1}'))


NUMBER = specs.json_schema({"type": "integer"})


@pytest.mark.parametrize(
    ("reasoning", "opened", "good", "bad"),
    [
        ("none", False, ["12"], ["<think>x</think>12", "x"]),
        ("think", False, ["12", "<think>\nx < y\n</think>\n\n12"], ["<think>12", "x"]),
        ("think", True, ["x < y\n</think>\n\n12", "</think>12"], ["12", "x</think>y"]),
        (
            "harmony",
            False,
            ["<|channel|>analysis<|message|>x<|end|><|start|>assistant<|channel|>final<|message|>12"],
            ["12", "<|channel|>final<|message|>x"],
        ),
    ],
)
def test_the_form_asked_for_applies_after_the_thought(
    compiler: GrammarCompiler, tokenizer: Tokenizer, reasoning: str, opened: bool, good: Any, bad: Any
) -> None:
    thoughts = Thoughts(REASONING[reasoning], opened, lambda text: None)
    for asked in (NUMBER, specs.regex("[0-9]{2}")):
        structure = answer_structure(
            Structure(lambda asked=asked: asked, "response_format"),
            ToolUse(),
            TOOL_FORMATS["hermes"],
            thoughts,
        )
        walk = Walk(compiler, tokenizer, structure)
        assert [t for t in good if not walk.accepts(t)] == []
        assert [t for t in bad if walk.accepts(t)] == []


def test_an_answer_with_a_form_may_call_instead(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    thoughts = Thoughts(REASONING["think"], False, lambda text: None)
    asked = Structure(lambda: NUMBER, "response_format")
    walk = Walk(
        compiler, tokenizer, answer_structure(asked, use(required=False), TOOL_FORMATS["hermes"], thoughts)
    )
    assert walk.accepts("12") and walk.accepts(CALL) and walk.accepts(f"<think>x</think>\n{CALL}")
    assert not walk.accepts("x") and not walk.accepts(f"12{CALL}")


def test_control_tokens_stand_for_themselves(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    """A format whose marks are the tokenizer's control tokens, here two that the default model has."""
    ids = {"<|im_start|>": 1, "<|im_end|>": 2}
    thoughts = Thoughts(None, False, ids.get)
    assert thoughts.literal('a<|im_start|>"b" <c>') == '"a" <[1]> "\\"b\\" <c>"'
    walk = Walk(
        compiler,
        tokenizer,
        Structure(lambda: specs.grammar(f"start: {thoughts.literal('<|im_start|>x')}"), ""),
    )
    assert walk.accepts("<|im_start|>x") and not walk.accepts("x")
