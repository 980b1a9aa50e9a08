"""Grammars that are made to cost: each compiles or is refused, soon, and the process lives on."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import _engine
from octavo.errors import InvalidArgumentError, OctavoError
from octavo.structured import GrammarCompiler, GrammarLimits, GrammarSpec, StructuredOutputsParams
from octavo.structured import spec as specs
from octavo.tokenizer import from_gguf


@pytest.fixture(scope="module")
def compiler(smollm2: Path) -> Iterator[GrammarCompiler]:
    tokenizer = from_gguf(dict(_engine.GgufFile(str(smollm2)).metadata()))
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_token_ids)
    _ = made.vocabulary
    yield made
    made.close()


def chain(link: Callable[[dict[str, Any]], dict[str, Any]], length: int) -> dict[str, Any]:
    """References that lead from one definition to the next, the last to a null."""
    named = {f"d{i:04}": link({"$ref": f"#/$defs/d{i + 1:04}"}) for i in range(length)}
    return {"$defs": {**named, f"d{length:04}": {"type": "null"}}, "$ref": "#/$defs/d0000"}


def required(link: dict[str, Any]) -> dict[str, Any]:
    return {"type": "object", "required": ["x"], "properties": {"x": link}}


def lark_chain(link: str, length: int) -> str:
    rules = (f"r{i:05}: " + link.format(f"r{i + 1:05}") for i in range(length))
    return "\n".join(("start: r00000", *rules, f'r{length:05}: "b"'))


@pytest.mark.parametrize(
    "make",
    [
        lambda: specs.json_schema(chain(lambda link: link, 1900)),
        lambda: specs.json_schema(chain(required, 1900)),
        lambda: specs.json_schema(chain(lambda link: {"allOf": [link, {}]}, 1900)),
        pytest.param(lambda: specs.grammar(lark_chain("{}", 15000)), marks=pytest.mark.slow),
        lambda: specs.grammar(lark_chain('({} "a")', 5000)),
        lambda: specs.grammar("start: %json " + json.dumps(chain(required, 2500))),
        pytest.param(
            lambda: specs.grammar(
                "root ::= r0\n" + "".join(f"r{i} ::= r{i + 1}\n" for i in range(3000)) + 'r3000 ::= "b"'
            ),
            marks=pytest.mark.slow,
        ),
    ],
    ids=["references", "objects", "allOf", "rules", "groups", "embedded", "gbnf"],
)  # fmt: skip
def test_what_is_nested_by_reference_does_not_exhaust_a_stack(
    compiler: GrammarCompiler, make: Callable[[], GrammarSpec]
) -> None:
    start = time.process_time()
    spec = make()
    assert len(spec.text) < compiler.limits.max_bytes
    try:
        compiler.vocabulary.compile(spec.kind, spec.text).start().fill_mask(49152)
    except InvalidArgumentError as error:
        assert "too large" in str(error) or "exceeded" in str(error)
    assert time.process_time() - start < 5


def test_a_chain_without_an_end_is_found_quickly() -> None:
    endless = chain(required, 1900)
    endless["$defs"]["d1900"] = {"$ref": "#/$defs/d0000"}
    start = time.process_time()
    with pytest.raises(InvalidArgumentError, match="no finite document"):
        specs.json_schema(endless)
    assert time.process_time() - start < 2


@pytest.mark.parametrize(
    ("make", "reason"),
    [
        (lambda: specs.json_schema(chain(required, 2001)), "2002 different references, at most 2000"),
        (lambda: specs.json_schema("[" * (2**20 + 1)), "1048577 characters, at most 1048576"),
        (lambda: specs.json_schema({"type": "integer", "multipleOf": 1_000_003}), "100000, got 1000003"),
        (lambda: specs.json_schema({"allOf": [{"multipleOf": m} for m in (7, 11, 13, 17, 19)]}), "at most 100000"),
        (lambda: specs.json_schema({"type": "number", "multipleOf": 10.00003}), "100000, got 10.00003"),
        (lambda: specs.grammar('start: %json {"multipleOf": 1000003}'), "100000, got 1000003"),
        (
            lambda: specs.json_schema({"properties": {"a": {"items": [{"multipleOf": 0}]}}}),
            r"json\.properties\.a\.items\[0\]\.multipleOf must be above 0, got 0",
        ),
        (
            lambda: specs.json_schema({"properties": {"const": {"minLength": 10**12}}}),
            r"json\.properties\.const\.minLength must be at most 1000000000, got 1e\+12",
        ),
        (lambda: specs.grammar('start: %json {"maxLength": 10000000000}'), r"grammar\.maxLength must be at most"),
        (lambda: StructuredOutputsParams(json=False).spec(), "nothing fits the schema false"),  # type: ignore[arg-type]
        (lambda: specs.grammar("start: " + "%json {}" * 1001), "more than 1000 schemas"),
        (lambda: specs.grammar("start: " + "a" * 2**20), "at most 1048576"),
        (lambda: specs.json_schema({"enum": [0] * 2**16}), "more than 65536 values"),
        (lambda: specs.json_schema('{"enum": [' + "[]," * 2**17 + "[]]}"), "more than 65536 values"),
        (lambda: specs.json_schema({"const": "\ud800"}), "lone surrogate"),
        (lambda: specs.json_schema('{"properties": {"\\ud800": {}}}'), "lone surrogate"),
        (lambda: specs.grammar("root ::= " + '"a" ' * 2**14), "GBNF at most 65536"),
    ],
)  # fmt: skip
def test_what_would_cost_too_much_is_refused_before_it_is_compiled(
    make: Callable[[], GrammarSpec], reason: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=reason):
        make()


def test_data_in_a_schema_is_not_read_as_one() -> None:
    specs.json_schema({"const": {"multipleOf": 0, "minLength": 10**12}})


def test_a_grammar_that_nothing_fits_says_so(compiler: GrammarCompiler) -> None:
    constraint = compiler.compile(specs.grammar("start: start")).native.start()
    with pytest.raises(OctavoError, match="the grammar cannot go on: no text fits it"):
        constraint.fill_mask(49152)


@pytest.mark.parametrize("index", ["9" * 5000, "\u0660", "1"])
def test_a_reference_to_no_item_is_left_to_the_compiler(compiler: GrammarCompiler, index: str) -> None:
    schema = {"anyOf": [{"type": "null"}], "properties": {"a": {"$ref": f"#/anyOf/{index}"}}}
    spec = specs.json_schema(schema)
    with pytest.raises(InvalidArgumentError):
        compiler.compile(spec)


def test_common_multiples_are_kept(compiler: GrammarCompiler) -> None:
    values = [0.01, 0.25, 5, 60, 1000, 1e-7, 99_000]
    compiler.compile(
        specs.json_schema({"properties": {str(v): {"type": "number", "multipleOf": v} for v in values}})
    )


def optional_words(count: int, kinds: int) -> str:
    rules = (f"a{i}: /[a-z]{{1,{i + 1}}}/" for i in range(kinds))
    return "\n".join(("start: " + " ".join(f"a{i % kinds}?" for i in range(count)), *rules))


@pytest.mark.parametrize(
    "spec",
    [
        specs.grammar("start: " + " ".join(["a?"] * 600) + "\na: /[a-z]/"),
        specs.grammar(optional_words(900, 50)),
        specs.grammar("\n".join(["start: r0", *(f"r{i}: r{i + 1} r{i + 1}" for i in range(20)), 'r20: "abcde "'])),
        specs.json_schema({"properties": {f"property_{i}": {"type": "string"} for i in range(1000)}}),
        specs.json_schema({"anyOf": [{"properties": {"k": {"const": f"v{i}"}}} for i in range(300)]}),
    ],
    ids=["optional letters", "optional words", "doubled", "properties", "alternatives"],
)  # fmt: skip
@pytest.mark.unsanitized("measures time")
def test_no_mask_holds_up_a_step_for_long(compiler: GrammarCompiler, spec: GrammarSpec) -> None:
    """A grammar whose masks would is given up with an error."""
    constraint, drawn = compiler.compile(spec).native.start(), random.Random(1)
    for _ in range(30):
        start = time.thread_time()
        try:
            mask = constraint.fill_mask(49152)
        except InvalidArgumentError as error:
            assert "items" in str(error)
            return
        finally:
            assert time.thread_time() - start < 0.12
        allowed = np.flatnonzero(np.unpackbits(mask.view(np.uint8), bitorder="little"))
        try:
            constraint.accept(int(drawn.choice(allowed)))
        except InvalidArgumentError as error:
            assert "items" in str(error)
            return
        if constraint.done:
            return


SLOW = [99_991, 99_989, 99_971, 99_961, 99_929, 99_923, 99_907, 99_901]  # primes: as many states


def slow(number: int) -> GrammarSpec:
    return specs.json_schema({"type": "integer", "multipleOf": number})


@pytest.mark.slow
@pytest.mark.unsanitized("measures time")
def test_a_tenants_slow_schemas_hold_up_nobody_else(compiler: GrammarCompiler) -> None:
    async def scenario() -> float:
        hostile = [asyncio.ensure_future(compiler.compile_soon(slow(n), 1)) for n in SLOW]
        await asyncio.sleep(0.1)
        start = time.monotonic()
        await compiler.compile_soon(specs.json_schema({"enum": ["red", "blue"]}), 2)
        waited = time.monotonic() - start
        assert sum(task.done() for task in hostile) < 3
        await asyncio.gather(*hostile, return_exceptions=True)
        return waited

    assert asyncio.run(scenario()) < 1.0


def test_what_one_tenant_has_compiled_does_not_show_to_another(compiler: GrammarCompiler) -> None:
    spec = specs.json_schema({"enum": ["a", "secret", "enum"]})
    first = compiler.compile(spec, 3)
    assert compiler.compile(spec, 3) is first and compiler.compile(spec, 4) is not first


def test_the_tenant_with_most_grammars_forgets_first(smollm2: Path) -> None:
    tokenizer = from_gguf(dict(_engine.GgufFile(str(smollm2)).metadata()))
    limits = GrammarLimits(cache_size=6)
    made = GrammarCompiler(tokenizer, tokenizer.vocab_size, tokenizer.eos_token_ids, limits)
    kept = made.compile(specs.regex("a"), 2)
    many = [made.compile(specs.regex(f"a{{{i + 1}}}"), 1) for i in range(20)]
    assert made.compile(specs.regex("a"), 2) is kept
    assert made.compile(specs.regex("a{20}"), 1) is many[-1]
    assert made.compile(specs.regex("a{10}"), 1) is not many[9]
    made.close()
