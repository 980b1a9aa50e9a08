"""Text that a grammar forces: long ones cost a step no more than short ones, and come out as they stand."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import _engine
from octavo.structured import GrammarCompiler, GrammarSpec
from octavo.structured import spec as specs
from octavo.structured.forced_runs import MAX_FORCED
from octavo.tokenizer import Tokenizer, from_gguf

WORDS = "lorem ipsum dolor sit amet, " * 10_000
NO_BLANKS = {"whitespace": None}


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Tokenizer:
    return from_gguf(dict(_engine.GgufFile(str(smollm2)).metadata()))


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> Iterator[GrammarCompiler]:
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_token_ids)
    yield made
    made.close()


def doubled(rule: str, times: int, leaf: str) -> str:
    """A short grammar of a long text: each rule is the next one several times."""
    rules = (f"{rule}{i}: " + f"{rule}{i + 1} " * times for i in range(5))
    return "\n".join((f"start: {rule}0", *rules, f'{rule}5: "{leaf}"'))


def doubled_schema(times: int, leaf: str) -> dict[str, Any]:
    named = {
        f"d{i}": {"type": "array", "prefixItems": [{"$ref": f"#/$defs/d{i + 1}"}] * times, "minItems": times}
        for i in range(4)
    }
    return {"$defs": {**named, "d4": {"const": leaf}}, "$ref": "#/$defs/d0"}


@pytest.mark.parametrize(
    ("spec", "forcing"),
    [
        (specs.json_schema({"const": WORDS[:MAX_FORCED - 2]}), True),
        (specs.json_schema({"const": WORDS[:MAX_FORCED]}), False),
        (specs.json_schema({"properties": {"a": {"enum": [1, {"b": WORDS[:MAX_FORCED]}]}}}), False),
        (specs.json_schema({"enum": [f"one of very many {i}" for i in range(500)]}), True),
        (specs.json_schema({"properties": {WORDS[:MAX_FORCED + 1]: {}}}), False),
        (specs.json_schema({"type": "string", "pattern": "^(a{60}){60}$"}), False),
        (specs.json_schema({"type": "string", "pattern": r"^\d{4}-\d{2}-\d{2}$"}), True),
        (specs.json_schema({"type": "array", "items": {"const": 1}, "minItems": 1000}), False),
        (specs.json_schema({"properties": {f"p{i}": {"type": "string"} for i in range(2000)}}), True),
        (specs.json_schema({"properties": {f"p{i}": {"const": "x"} for i in range(2000)}}, **NO_BLANKS), False),
        (
            specs.json_schema(
                {"type": "array", "minItems": 20, "items": {"type": "array", "minItems": 20, "items": {"const": 1}}}
            ),
            False,
        ),
        (specs.json_schema({"properties": {f"p{i}": {"type": "array", "minItems": 3} for i in range(20)}}), True),
        (GrammarSpec("lark", ""), True),
        (specs.grammar("no definition"), True),
        (specs.regex("a{3000}"), False),
        (specs.regex("(ab{2}){30}"), True),
        (specs.grammar('start: "a" /b{3000}/'), False),
        (specs.grammar("start: a\n" + "\n".join(f'r{i}: "{i}"' for i in range(900)) + '\na: "b"'), True),
        (specs.grammar('start: "a" %json ' + json.dumps({"const": WORDS[:3000]})), False),
        (specs.grammar('start: "a" %json ' + json.dumps({"properties": {f"p{i}": {} for i in range(900)}})), True),
        (specs.grammar(doubled("r", 8, "abcdefgh ")), False),
        (specs.grammar(doubled("R", 8, "abcdefgh ")), False),
        (specs.grammar(doubled("r", 3, "abcdefgh ")), False),
        (specs.grammar(doubled("r", 2, "abcdefgh ")), True),
        (specs.grammar(doubled("r", 8, "abcdefgh ").replace(":", " ::=").replace("start", "root")), False),
        (specs.grammar('start: b{60}\nb: (a | "c"){60}\na: "abc"'), False),
        (specs.grammar('start: b~60\nb: a~2..60\na: "abc"'), True),
        (specs.grammar('start: "(" start ")" | "' + "a" * 1000 + '"'), True),
        (specs.json_schema(doubled_schema(8, WORDS[:20]), **NO_BLANKS), False),
        (specs.json_schema(doubled_schema(2, WORDS[:20]), **NO_BLANKS), True),
        (specs.json_schema(doubled_schema(8, WORDS[:20])), True),
        (specs.json_schema({"type": "array", "items": {"const": WORDS[:900]}, "minItems": 99}, **NO_BLANKS), False),
        (GrammarSpec("llguidance", json.dumps({"grammars": [{"lark_grammar": doubled("R", 8, "abc ")}]})), False),
        (specs.choice([f"number {i}" for i in range(500)]), True),
        (specs.choice([WORDS[:3000], "b"]), False),
        (GrammarSpec("llguidance", json.dumps({"grammars": [{"json_schema": {"const": WORDS[:3000]}}]})), False),
    ],
)  # fmt: skip
def test_what_may_be_long_is_not_forced(spec: GrammarSpec, forcing: bool) -> None:
    assert spec.forcing is forcing and spec.after("</think>").forcing is forcing


@pytest.mark.parametrize(
    "text",
    [
        'start: "' + '\\"' * 120_000,
        "start: /" + "\\/" * 120_000,
        'start: "a"\n' + "a" * 240_000,
        pytest.param("start: " + "(" * 60_000 + '"a"' + "){2}" * 40_000, marks=pytest.mark.slow),
        "start: " + "a " * 100_000 + "{2}" * 10_000,
        "start: a" + "{ " * 120_000,
        pytest.param("start: %json " + '["' * 100_000, marks=pytest.mark.slow),
    ],
    ids=["strings", "patterns", "names", "groups", "counts", "braces", "embedded"],
)  # fmt: skip
@pytest.mark.unsanitized("measures time")
def test_the_estimate_takes_no_time_itself(text: str) -> None:
    start = time.thread_time()
    GrammarSpec("lark", text)
    assert time.thread_time() - start < 10  # what is not linear takes minutes


def longest_allowed(mask: Any, tokenizer: Tokenizer) -> int:
    ids = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
    return int(max(ids, key=lambda i: len(tokenizer.token_bytes(int(i)))))


@pytest.mark.parametrize(
    "spec",
    [
        specs.json_schema({"const": WORDS[:50_000]}),
        specs.json_schema({"const": "x" * 50_000}),
        specs.json_schema({"const": " " * 50_000}),
        specs.json_schema({"const": "x" * 2000}),
        specs.json_schema({"const": "日本" * 340}),
        specs.regex("a{50000}"),
        specs.regex("(abcdefghi ){5000}"),
        specs.grammar("\n".join(["start: r0", *(f"r{i}: r{i + 1} r{i + 1}" for i in range(10)), 'r10: "abcde "'])),
        specs.json_schema({"type": "array", "items": {"const": "abc"}, "minItems": 5000}, **NO_BLANKS),
        specs.grammar(doubled("R", 8, "abcdefgh ")),
        specs.json_schema(doubled_schema(8, WORDS[:180]), **NO_BLANKS),
        specs.choice([f"{WORDS[:1900]} {i}" for i in range(120)]),
        specs.choice([f"one of very many {i}" for i in range(5000)]),
    ],
    ids=["words", "x", "blanks", "short", "wide", "count", "group", "doubled", "items", "terminals", "referred",
         "long choices", "many choices"],
)  # fmt: skip
@pytest.mark.unsanitized("measures time")
def test_no_step_waits_long_for_what_is_forced(
    spec: GrammarSpec, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    constraint = compiler.compile(spec).native.start()
    longest = 0.0
    for _ in range(40):
        start = time.thread_time()
        mask = constraint.fill_mask(tokenizer.vocab_size)
        forced = constraint.forced()
        spent = time.thread_time() - start
        token = longest_allowed(mask, tokenizer)
        start = time.thread_time()
        for accepted in forced or [token]:
            constraint.accept(accepted)
        longest = max(longest, spent + time.thread_time() - start)
        if constraint.done:
            break
    assert longest < 0.06


@pytest.mark.parametrize("size", [1000, 1500, 3000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_a_long_text_comes_out_as_it_stands(
    size: int, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    text = (WORDS + "日本語 <|im_start|> ")[-size:]
    constraint = compiler.compile(specs.json_schema({"const": text})).native.start()
    ids: list[int] = []
    while not constraint.done:
        more = constraint.forced() or [longest_allowed(constraint.fill_mask(tokenizer.vocab_size), tokenizer)]
        for token in more:
            constraint.accept(token)
        ids += more
    assert json.loads(b"".join(map(tokenizer.token_bytes, ids))) == text


def merged(tokenizer: Tokenizer, word: str) -> list[int]:
    """Of a word without multi-byte characters: the pair with the lowest id is merged first, as it is written down."""
    known = {
        tokenizer.token_bytes(i): i
        for i in reversed(range(tokenizer.vocab_size))
        if i not in tokenizer.special_ids
    }
    parts = [bytes([b]) for b in word.encode()]
    while True:
        pairs = [(known[a + b], i) for i, (a, b) in enumerate(itertools.pairwise(parts)) if a + b in known]
        if not pairs:
            return [known[part] for part in parts]
        _, at = min(pairs)
        parts[at : at + 2] = [parts[at] + parts[at + 1]]


@pytest.mark.parametrize(
    "word", ["x" * 200, "abababab" * 20, "HTTPStatusCodeIsNotANumber", "aaaabaaabaabab" * 9]
)
def test_words_are_merged_in_the_order_of_ids(
    word: str, compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    vocabulary: Any = compiler.vocabulary
    assert vocabulary.tokenize(word) == merged(tokenizer, word)


def test_the_beginning_of_a_long_text_is_tokenized_as_the_whole_is(
    compiler: GrammarCompiler, tokenizer: Tokenizer
) -> None:
    vocabulary: Any = compiler.vocabulary
    ids = vocabulary.tokenize(WORDS)
    assert ids == tokenizer.encode(WORDS, add_special_tokens=False)[: len(ids)]
    assert 1024 <= len(b"".join(map(tokenizer.token_bytes, ids))) < 1024 + 256
