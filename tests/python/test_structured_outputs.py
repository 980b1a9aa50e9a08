"""Structured output through ``LLM``, of a model of noise: what keeps the form is not the model."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from octavo import LLM, SamplingParams
from octavo.errors import InvalidArgumentError
from octavo.structured import GrammarSpec
from octavo.structured import spec as specs

PERSON = {
    "type": "object",
    "properties": {
        "first_name": {"type": "string", "maxLength": 12},
        "age": {"type": "integer", "minimum": 0, "maximum": 130},
        "kind": {"enum": ["student", "teacher"]},
        "tags": {"type": "array", "items": {"type": "string", "maxLength": 8}, "maxItems": 3},
    },
    "required": ["first_name", "age", "kind", "tags"],
    "additionalProperties": False,
}
PROMPT = "Describe a person as JSON: "


@pytest.fixture(scope="module")
def llm(tiny_folder: Path) -> Iterator[LLM]:
    with LLM(str(tiny_folder), max_model_len=256, num_gpu_blocks_override=256, max_num_seqs=32) as running:
        yield running


def run(llm: LLM, params: list[SamplingParams] | SamplingParams, count: int = 1) -> list[Any]:
    prompts = [PROMPT] * (len(params) if isinstance(params, list) else count)
    return llm.generate(prompts, params, use_tqdm=False)


def person(**values: Any) -> SamplingParams:
    return SamplingParams(**{"max_tokens": 120, "seed": 3, "structured_outputs": {"json": PERSON}, **values})


@pytest.mark.parametrize(
    ("structure", "fits"),
    [
        ({"choice": ["red", "dark\nblue", 'a "quoted" one', "ünïcode"]}, lambda t: t in CHOICES),
        ({"regex": r"[0-9]{3}-[a-f]{2,4}"}, lambda t: t[3] == "-" and set(t[4:]) <= set("abcdef")),
        ({"grammar": 'start: "x" /[0-9]/+ ";"'}, lambda t: t[0] == "x" and t[-1] == ";" and t[1:-1].isdigit()),
        ({"grammar": 'root ::= "ab" [0-9] "\\n"'}, lambda t: t[:2] == "ab" and t[3:] == "\n"),
        ({"json": '{"type": "array", "items": {"type": "boolean"}, "maxItems": 2}'}, json.loads),
        (
            {"structural_tag": {"structures": [{"begin": "<f>", "schema": {"type": "null"}, "end": "</f>"}],
                                "triggers": ["<f"]}},
            lambda t: "<f" not in t or "<f>null</f>" in t,
        ),
    ],
)  # fmt: skip
def test_every_form_is_kept(llm: LLM, structure: dict[str, Any], fits: Any) -> None:
    for seed in range(4):
        output = run(llm, SamplingParams(max_tokens=40, seed=seed, structured_outputs=structure))[0].outputs[
            0
        ]
        assert output.finish_reason == "stop" or "structural_tag" in structure or len(output.token_ids) == 40
        if output.finish_reason == "stop":
            assert fits(output.text) is not False, output.text


CHOICES = {"red", "dark\nblue", 'a "quoted" one', "ünïcode"}


def test_json_fits_its_schema_and_ends_with_its_root(llm: LLM) -> None:
    for output in run(llm, [person(seed=s, n=2) for s in range(4)]):
        for choice in output.outputs:
            assert choice.finish_reason == "stop" and choice.text.endswith("}")
            jsonschema.validate(json.loads(choice.text), PERSON)


def test_text_that_is_forced_is_what_sampling_finds(llm: LLM) -> None:
    """With logprobs every token is sampled, without them forced ones are appended: the same tokens."""
    before = llm.stats()["forced_tokens"]
    jumped = run(llm, [person(seed=s) for s in range(6)])
    forced = llm.stats()["forced_tokens"] - before
    assert forced > 20
    sampled = run(llm, [person(seed=s, logprobs=0) for s in range(6)])
    assert llm.stats()["forced_tokens"] - before == forced
    for a, b in zip(jumped, sampled, strict=True):
        assert a.outputs[0].token_ids == b.outputs[0].token_ids
        assert a.outputs[0].text == b.outputs[0].text


def test_forced_text_is_tokenized_as_the_tokenizer_does(llm: LLM) -> None:
    vocabulary: Any = llm.model.grammars.vocabulary
    assert vocabulary.forces
    tokenizer = llm.get_tokenizer()
    texts = [json.dumps(PERSON), json.dumps(PERSON, indent=2), '", "zip_code": ', "<|im_start|>x", "a\n\n  b"]
    texts += [
        f'"{word}": ' for word in ("isActive", "created_at", "HTTPStatus", "naïve", "x1", "$ref", "日本")
    ]
    for text in texts[:3] + texts[5:]:
        assert vocabulary.tokenize(text) == tokenizer.encode(text, add_special_tokens=False), text


def test_company_siblings_and_the_cache_change_nothing(llm: LLM) -> None:
    alone = [run(llm, person(seed=s, n=3, max_tokens=40))[0] for s in (1, 2)]
    mixed = run(
        llm,
        [
            person(seed=1, n=3, max_tokens=40),
            SamplingParams(max_tokens=40, seed=9),
            person(seed=2, n=3, max_tokens=40),
        ],
    )
    for a, b in zip(alone, (mixed[0], mixed[2]), strict=True):
        assert [c.token_ids for c in a.outputs] == [c.token_ids for c in b.outputs]


@pytest.mark.slow
def test_preemption_changes_nothing(tiny_folder: Path) -> None:
    want = None
    for blocks in (256, 12):
        with LLM(str(tiny_folder), max_model_len=256, num_gpu_blocks_override=blocks, max_num_seqs=8) as llm:
            params = [person(seed=s, max_tokens=60, ignore_eos=True) for s in range(5)]
            got = [o.outputs[0].token_ids for o in run(llm, params)]
            assert (llm.stats()["preemptions"] > 0) == (blocks == 12)
            llm.model.engine.audit()
        assert want is None or got == want
        want = got


def test_cut_by_max_tokens_is_length_and_ignore_eos_ends_with_the_root(llm: LLM) -> None:
    short = run(llm, person(max_tokens=3))[0].outputs[0]
    assert short.finish_reason == "length" and len(short.token_ids) == 3
    whole = run(llm, person(ignore_eos=True))[0].outputs[0]
    assert whole.finish_reason == "stop" and json.loads(whole.text)
    number = SamplingParams(
        max_tokens=30, seed=1, ignore_eos=True, structured_outputs={"json": {"type": "integer"}}
    )
    output = run(llm, number)[0].outputs[0]
    assert int(output.text) is not None and output.stop_reason is None


def test_a_bias_cannot_leave_the_grammar_and_what_excludes_it_fails_alone(llm: LLM) -> None:
    token = llm.get_tokenizer().encode(" the", add_special_tokens=False)[0]
    biased = run(llm, person(logit_bias={token: 100.0}))[0].outputs[0]
    if biased.finish_reason == "stop":
        jsonschema.validate(json.loads(biased.text), PERSON)
    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        outputs = run(llm, [person(allowed_token_ids=[token]), person()])
    assert [o.outputs[0].finish_reason for o in outputs] == ["error", "stop"]
    assert "grammar" in str(said[0].message) and "allowed_token_ids" in str(said[0].message)


def test_a_grammar_that_fails_in_flight_fails_only_its_request(llm: LLM) -> None:
    marked = llm.get_tokenizer().encode(" zebra", add_special_tokens=False)
    llm.model.engine.inject_fault("grammar", token=marked[0])
    with pytest.warns(UserWarning, match="provoked"):
        outputs = llm.generate([PROMPT + " zebra", PROMPT], [person(), person()], use_tqdm=False)
    assert [o.outputs[0].finish_reason for o in outputs] == ["error", "stop"]


def test_a_grammar_begins_after_its_marker(llm: LLM) -> None:
    spec = specs.json_schema({"type": "object", "properties": {"a": {"type": "boolean"}}, "required": ["a"],
                              "additionalProperties": False}).after("</think>")  # fmt: skip
    compiled = llm.model.grammars.compile(spec)
    token_ids = llm.get_tokenizer().encode("Hmm, let me see.</think>", add_special_tokens=False)
    constraint = compiled.native.start()
    vocab = llm.model.vocab_size
    end = llm.model.eos_token_ids[0]
    for token in token_ids:
        mask = constraint.fill_mask(vocab)
        assert mask[token // 32] >> (token % 32) & 1 and not mask[end // 32] >> (end % 32) & 1
        constraint.accept(token)
    copy = constraint.fork()
    for token in llm.get_tokenizer().encode('{"a": true}', add_special_tokens=False):
        constraint.accept(token)
    assert constraint.done and not copy.done
    constraint.rollback(2)
    assert not constraint.done
    with pytest.raises(InvalidArgumentError, match="does not allow"):
        copy.accept(token_ids[0])


def test_a_fork_stays_in_the_grammar(llm: LLM) -> None:
    parent = run(llm, person())[0]
    position = len(parent.prompt_token_ids) + 8
    child = llm.fork(parent, person(seed=77), position=position).outputs[0]
    head = llm.get_tokenizer().decode(parent.outputs[0].token_ids[:8])
    assert child.finish_reason == "stop"
    jsonschema.validate(json.loads(head + child.text), PERSON)


def test_python_classes_of_the_library_serve_where_its_functions_cannot(
    llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    from octavo.structured import vocabulary

    monkeypatch.setattr(vocabulary, "library_path", lambda: vocabulary.__file__)
    model = llm.model
    with pytest.warns(RuntimeWarning, match="C interface"):
        slow = vocabulary.make_vocabulary(llm.get_tokenizer(), model.vocab_size, model.eos_token_ids)
    spec = specs.json_schema(PERSON)
    from octavo.structured import CompiledGrammar

    params = person().with_grammar(CompiledGrammar(spec, slow.compile(spec.kind, spec.text)))
    assert run(llm, params)[0].outputs[0].token_ids == run(llm, person())[0].outputs[0].token_ids
    with pytest.raises(InvalidArgumentError, match="not"):
        slow.compile("json_schema", '{"not": {}}')


def test_a_grammar_of_another_model_is_refused(llm: LLM, tiny_llama: Any) -> None:
    compiled = llm.model.grammars.compile(GrammarSpec("regex", "a+"))
    with LLM(str(tiny_llama), num_gpu_blocks_override=8, skip_tokenizer_init=True) as other:
        with pytest.raises(Exception, match="another model"):
            other.generate([[1, 2]], SamplingParams(detokenize=False, grammar=compiled), use_tqdm=False)
        with pytest.raises(InvalidArgumentError, match="tokenizer"):
            other.generate([[1, 2]], person(detokenize=False), use_tqdm=False)


@pytest.mark.parametrize(
    ("kind", "forces"), [("bpe", True), pytest.param("unigram", False, marks=pytest.mark.slow)]
)
def test_sentencepiece_vocabularies_force_only_what_they_merge(kind: str, forces: bool) -> None:
    pytest.importorskip("sentencepiece")
    from octavo.structured import GrammarCompiler
    from octavo.tokenizer import from_gguf

    from .test_sentencepiece import train

    plain = {"remove_extra_whitespaces": False, "normalization_rule_name": "identity"}
    tokenizer = from_gguf(train(model_type=kind, add_dummy_prefix=True, **plain)[1])
    vocab = tokenizer.vocab_size + 5  # padding rows
    compiler = GrammarCompiler(tokenizer, vocab, tokenizer.eos_token_ids)
    schema = {"type": "object", "properties": {"naïve": {"enum": ["日本"]}}, "required": ["naïve"],
              "additionalProperties": False}  # fmt: skip
    constraint = compiler.compile(specs.json_schema(schema)).native.start()
    ids: list[int] = []
    while not constraint.done:
        mask = constraint.fill_mask(vocab)
        ids.append(next(i for i in range(vocab) if mask[i // 32] >> (i % 32) & 1))
        constraint.accept(ids[-1])
    assert json.loads(b"".join(map(tokenizer.token_bytes, ids))) == {"naïve": "日本"}
    assert compiler.vocabulary.forces is forces  # type: ignore[attr-defined]
    compiler.close()


def test_no_token_holds_the_marker_and_the_beginning_of_the_document(llm: LLM) -> None:
    """A token such as `>{` would hide the brace from the grammar."""
    tokenizer, vocab = llm.get_tokenizer(), llm.model.vocab_size
    constraint = llm.model.grammars.compile(GrammarSpec("regex", "[a-z]+").after(">")).native.start()
    free = constraint.fill_mask(vocab)
    allowed = {tokenizer.token_bytes(i) for i in range(vocab) if free[i // 32] >> (i % 32) & 1}
    assert {b">", b"x"} <= allowed and not any(b">" in t and t[t.index(b">") + 1 :].strip() for t in allowed)


def test_the_async_engine_compiles_off_its_loop(llm: LLM) -> None:
    import asyncio

    from octavo import AsyncEngine, StructuredOutputsParams

    async def scenario() -> list[str]:
        engine = AsyncEngine(llm.model)
        params = SamplingParams(
            seed=4, max_tokens=20, structured_outputs=StructuredOutputsParams(choice=["north", "south"])
        )

        async def one() -> str:
            async for output in engine.generate(PROMPT, params):
                text = output.outputs[0].text
            return text

        with pytest.raises(InvalidArgumentError, match="not"):
            async for _ in engine.generate(PROMPT, SamplingParams(structured_outputs={"json": {"not": {}}})):
                pass
        return list(await asyncio.gather(*(one() for _ in range(4))))

    texts = asyncio.run(scenario())
    assert len(set(texts)) == 1 and texts[0] in ("north", "south")
