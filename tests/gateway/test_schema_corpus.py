"""Grammars without a model: whatever the masks let through fits the schema, and no schema breaks the compiler."""

from __future__ import annotations

import json
import os
import random
import re
import time
from pathlib import Path
from typing import Any

import jsonschema
import numpy as np
import pytest
from schema_corpus import SchemaMaker

from octavo import _engine
from octavo.errors import InvalidArgumentError
from octavo.structured import CompiledGrammar, GrammarCompiler
from octavo.structured import spec as specs
from octavo.tokenizer import Tokenizer, from_gguf


@pytest.fixture(scope="module")
def tokenizer(smollm2: Path) -> Tokenizer:
    return from_gguf(dict(_engine.GgufFile(str(smollm2)).metadata()))


@pytest.fixture(scope="module")
def compiler(tokenizer: Tokenizer) -> Any:
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_token_ids)
    yield made
    made.close()


def allowed(constraint: _engine.Constraint, vocab: int) -> np.ndarray:
    bits = np.unpackbits(constraint.fill_mask(vocab).view(np.uint8), bitorder="little")
    return np.flatnonzero(bits[:vocab])


def closing(tokenizer: Tokenizer) -> np.ndarray:
    """Which tokens begin with what tends to end something."""
    starts = (b'"', b"}", b"]", b",", b"n")
    return np.array([tokenizer.token_bytes(i)[:1] in starts for i in range(tokenizer.vocab_size)])


def walk(
    grammar: CompiledGrammar, tokenizer: Tokenizer, closes: np.ndarray, seed: int, most: int
) -> str | None:
    """The text of tokens drawn from the masks alone, rather short ones; None where it did not end in time."""
    draw = random.Random(seed)
    constraint = grammar.native.start()
    ids: list[int] = []
    while not constraint.done:
        if len(ids) == most:
            return None
        choices = allowed(constraint, tokenizer.vocab_size)
        assert len(choices), "a mask without a token"
        short = choices[closes[choices]]
        pool = short if len(short) and draw.random() < 0.6 else choices
        ids.append(int(pool[draw.randrange(len(pool))]))
        constraint.accept(ids[-1])
    return b"".join(tokenizer.token_bytes(i) for i in ids if i not in tokenizer.eos_token_ids).decode()


@pytest.mark.slow
def test_whatever_the_masks_let_through_fits(compiler: GrammarCompiler, tokenizer: Tokenizer) -> None:
    ended, closes = 0, closing(tokenizer)
    for seed in range(60):
        schema = SchemaMaker(seed).schema()
        try:
            grammar = compiler.compile(specs.json_schema(schema))
        except InvalidArgumentError:
            continue
        text = walk(grammar, tokenizer, closes, seed, most=160)
        if text is None:
            continue
        ended += 1
        jsonschema.validate(json.loads(text), schema)
    assert ended > 20


@pytest.mark.slow
def test_no_schema_breaks_the_compiler(compiler: GrammarCompiler) -> None:
    """Behaviour 63: each of the corpus compiles or is refused with a reason."""
    compiled, reasons, seconds = 0, [], []
    for seed in range(1000):
        start = time.thread_time()
        try:
            compiler._compile(specs.json_schema(SchemaMaker(seed, unsupported=0.02).schema()))
            compiled += 1
        except InvalidArgumentError as error:
            reasons.append(str(error))
        seconds.append(time.thread_time() - start)
    print(
        f"{compiled} of 1000 compiled, p99 {sorted(seconds)[990] * 1e3:.1f} ms; refused: {sorted(set(reasons))}"
    )
    assert compiled > 700 and all(reasons)


def test_every_end_token_is_masked_until_the_document_is_whole(tokenizer: Tokenizer) -> None:
    """Behaviour 69: with several end tokens none escapes."""
    ends = [2, 0]
    two = GrammarCompiler(tokenizer, tokenizer.vocab_size, ends)
    constraint = two.compile(specs.json_schema({"type": "integer"})).native.start()
    assert not set(ends) & set(allowed(constraint, tokenizer.vocab_size))
    constraint.accept(tokenizer.encode("7", add_special_tokens=False)[0])
    assert set(ends) <= set(allowed(constraint, tokenizer.vocab_size))
    constraint.accept(ends[1])
    assert constraint.done
    two.close()


def test_equal_grammars_compile_once_and_the_oldest_goes(tokenizer: Tokenizer) -> None:
    from octavo.structured import GrammarLimits, GrammarSpec

    small = GrammarCompiler(
        tokenizer, tokenizer.vocab_size, [2], GrammarLimits(cache_size=2, max_bytes=64, timeout=5)
    )
    a, b, c = (GrammarSpec("regex", text) for text in ("a+", "b+", "c+"))
    first = small.compile(a)
    assert small.compile(GrammarSpec("regex", "a+")) is first
    small.compile(b), small.compile(a), small.compile(c)
    assert small.compile(a) is first
    with pytest.raises(InvalidArgumentError, match="65 bytes, at most 64"):
        small.compile(GrammarSpec("regex", "x" * 65))
    small.close()


def test_a_grammar_that_takes_too_long_is_given_up(tokenizer: Tokenizer) -> None:
    import asyncio

    from octavo.structured import GrammarLimits

    hasty = GrammarCompiler(tokenizer, tokenizer.vocab_size, [2], GrammarLimits(timeout=0.02))
    schema: dict[str, Any] = {"type": "string"}
    for i in range(9):
        schema = {
            "anyOf": [schema, {"type": "object", "properties": {f"a{i}": schema}, "required": [f"a{i}"]}]
        }
    for wait in (hasty.compile, lambda spec: asyncio.run(hasty.compile_soon(spec))):
        with pytest.raises(InvalidArgumentError, match=r"within 0\.02 s"):
            wait(specs.json_schema(schema))
    hasty.close()


@pytest.mark.slow
def test_draws_of_the_model_fit_and_none_runs_away_in_blanks() -> None:
    """At temperature 1 over the whole vocabulary. OCTAVO_TEST_DRAWS=500 is the run that the figures come from."""
    draws = int(os.environ.get("OCTAVO_TEST_DRAWS", "32"))
    from octavo import LLM, SamplingParams

    schemas = [SchemaMaker(seed).schema() for seed in range(100, 150)]
    finishes = {"stop": 0, "length": 0}
    with LLM(max_model_len=2048, num_gpu_blocks_override=1024, max_num_seqs=32) as llm:
        kept = [s for s in schemas if _compiles(llm, s)]
        each = [kept[i % len(kept)] for i in range(draws)]
        params = [
            SamplingParams(temperature=1.0, top_k=0, seed=i, max_tokens=300, structured_outputs={"json": s})
            for i, s in enumerate(each)
        ]
        conversations = [
            [
                {
                    "role": "user",
                    "content": f"Invent an example document for this schema: {json.dumps(s)}"[:1500],
                }
            ]
            for s in each
        ]
        outputs = llm.chat(conversations, params, use_tqdm=False)
    for schema, output in zip(each, outputs, strict=True):
        choice = output.outputs[0]
        finishes[str(choice.finish_reason)] += 1
        assert not re.search(r"\s{26}", re.sub(r'"(\\.|[^"\\])*"', '""', choice.text)), choice.text
        if choice.finish_reason == "stop":
            jsonschema.validate(json.loads(choice.text), schema)
    print(f"{draws} draws over {len(kept)} schemas: {finishes}")
    assert finishes["stop"] > draws * 0.6


def _compiles(llm: Any, schema: dict[str, Any]) -> bool:
    try:
        llm.model.grammars.compile(specs.json_schema(schema))
    except InvalidArgumentError:
        return False
    return True
