"""response_format and structured_outputs of `octavo serve`, mostly with a model of noise that answers at once."""

from __future__ import annotations

import json
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import jsonschema
import pytest
from served import Served, text_of


@pytest.fixture
def served(tiny: Served) -> Served:
    return tiny


POINT = {
    "type": "object",
    "properties": {"x": {"type": "integer"}, "label": {"type": "string", "maxLength": 10}},
    "required": ["x", "label"],
    "additionalProperties": False,
}
WARM = {"temperature": 1, "seed": 5, "max_tokens": 60}


def schema_format(schema: Any) -> dict[str, Any]:
    return {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}


def test_the_official_client_gets_what_it_asked_for_streamed_and_not(served: Served) -> None:
    from typing import Literal

    import pydantic

    class Step(pydantic.BaseModel):
        name: str = pydantic.Field(max_length=10)
        level: Literal["low", "high"]

    class Plan(pydantic.BaseModel):
        steps: list[Step] = pydantic.Field(max_length=2)
        done: bool

    messages = [{"role": "user", "content": "Make a plan."}]
    with served.client as client:
        parsed = client.chat.completions.parse(
            model=served.model, messages=messages, response_format=Plan, max_tokens=90, temperature=0
        )
        with client.chat.completions.stream(
            model=served.model, messages=messages, response_format=Plan, max_tokens=90, temperature=0
        ) as stream:
            streamed = stream.get_final_completion()
    assert isinstance(parsed.choices[0].message.parsed, Plan)
    assert streamed.choices[0].message.content == parsed.choices[0].message.content
    assert parsed.choices[0].finish_reason == "stop"


@pytest.mark.parametrize(
    "fields",
    [
        {"response_format": schema_format(POINT)},
        {"response_format": {"type": "json_object"}},
        {"structured_outputs": {"json": json.dumps(POINT), "disable_any_whitespace": True}},
        {"structured_outputs": {"choice": ["Paris", "Lyon"]}},
        {"structured_outputs": {"regex": "(Par|Ly)[a-z]{2,3}"}},
        {"structured_outputs": {"grammar": 'root ::= "x" | "y" root'}},
    ],
)
def test_each_form_streams_what_it_answers(served: Served, fields: dict[str, Any]) -> None:
    status, whole = served.chat(**WARM, **fields)
    assert status == 200, whole
    text = whole["choices"][0]["message"]["content"]
    assert text_of(served.stream(**WARM, **fields)) == text
    _, scored = served.chat(**WARM, **fields, logprobs=True)
    assert scored["choices"][0]["message"]["content"] == text
    assert scored["usage"]["completion_tokens"] == len(scored["choices"][0]["logprobs"]["content"])
    if whole["choices"][0]["finish_reason"] == "stop" and fields.get("response_format", {}).get(
        "json_schema"
    ):
        jsonschema.validate(json.loads(text), POINT)


@pytest.mark.parametrize(
    ("schema", "word"),
    [
        ({"not": {"type": "string"}}, "not"),
        ({"type": "array", "items": {"type": "integer"}, "uniqueItems": True}, "uniqueItems"),
        ({"type": "object", "properties": {"a": {"if": {}, "then": {}}}}, "then"),
        ({"oneOf": [{"type": "number"}, {"type": "integer"}]}, "oneOf"),
        ({"type": "string", "format": "iban"}, "format"),
        ({"type": "string", "pattern": "(?=a)b"}, "look-around"),
        ({"type": "string", "pattern": "("}, "unclosed"),
        ({"type": "strange"}, "strange"),
        ({"$ref": "https://example.com/schema"}, "example.com"),
        ({"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}, "leads back"),
        ({"type": "object", "properties": {"next": {"$ref": "#"}}, "required": ["next"]}, "leads back"),
        ({"enum": []}, "empty"),
    ],
)  # fmt: skip
def test_a_schema_that_cannot_be_honoured_is_a_400_that_names_why(
    served: Served, schema: Any, word: str
) -> None:
    """Behaviour 61, the loops; the rest are keywords that would be ignored in silence elsewhere."""
    for stream in (False, True):
        status, body = served.chat(response_format=schema_format(schema), stream=stream)
        assert status == 400 and body["error"]["param"] == "response_format", body
        assert word in body["error"]["message"]


def test_recursion_that_ends_is_kept(served: Served) -> None:
    """Behaviour 61."""
    link = {
        "type": "object",
        "properties": {"v": {"type": "boolean"}, "next": {"anyOf": [{"type": "null"}, {"$ref": "#"}]}},
        "required": ["v", "next"],
        "additionalProperties": False,
    }
    for seed in range(3):
        _, body = served.chat(response_format=schema_format(link), temperature=1, seed=seed, max_tokens=200)
        choice = body["choices"][0]
        if choice["finish_reason"] == "stop":
            jsonschema.validate(json.loads(choice["message"]["content"]), link)


def test_the_ends_of_a_document(served: Served) -> None:
    """Behaviours 67, 68 and 70: cut is "length"; a bias cannot leave the grammar; ignore_eos ends with the root."""
    form = {"response_format": schema_format(POINT)}
    _, cut = served.chat(**form, max_tokens=3)
    assert cut["choices"][0]["finish_reason"] == "length" and cut["usage"]["completion_tokens"] == 3
    _, whole = served.chat(**form, max_tokens=60, ignore_eos=True)
    assert whole["choices"][0]["finish_reason"] == "stop"
    jsonschema.validate(json.loads(whole["choices"][0]["message"]["content"]), POINT)
    _, ids = served.request("POST", "/tokenize", {"prompt": " the", "add_special_tokens": False})
    bias = {str(ids["tokens"][0]): 100}
    keys = {**POINT, "properties": {**POINT["properties"], "label": {"enum": ["a", "b"]}}}
    _, biased = served.chat(response_format=schema_format(keys), max_tokens=60, logit_bias=bias)
    assert biased["choices"][0]["finish_reason"] == "stop"
    jsonschema.validate(json.loads(biased["choices"][0]["message"]["content"]), keys)


def test_masks_that_leave_nothing_end_in_an_error_event(served: Served) -> None:
    """Behaviour 68: the request ends, streamed or not, and nothing stays."""
    _, ids = served.request("POST", "/tokenize", {"prompt": " the", "add_special_tokens": False})
    fields = {"response_format": schema_format(POINT), "allowed_token_ids": ids["tokens"]}
    status, body = served.chat(**fields)
    assert status == 400 and body["error"]["param"] == "structured_outputs"
    chunks = served.stream(**fields)
    assert "error" in chunks[-1]
    assert served.settles()


def heavy(depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": "string"}
    for i in range(depth):
        option = {"type": "object", "required": ["k"]}
        schema = {
            "oneOf": [
                {**option, "properties": {"k": {"const": f"{kind}{i}"}, "v": schema}} for kind in ("a", "b")
            ]
        }
    return schema


def by_reference(depth: int) -> dict[str, Any]:
    """The same in little text."""
    nodes: dict[str, Any] = {f"n{depth}": {"type": "string"}}
    for i in range(depth):
        inner = {"$ref": f"#/$defs/n{i + 1}"}
        options = [{"properties": {"k": {"const": f"{kind}{i}"}, "v": inner}} for kind in ("a", "b")]
        nodes[f"n{i}"] = {"oneOf": [{"type": "object", "required": ["k"], **option} for option in options]}
    return {"$ref": "#/$defs/n0", "$defs": nodes}


@pytest.mark.slow
@pytest.mark.unsanitized("measures time")
def test_streams_go_on_while_a_schema_compiles(served: Served) -> None:
    """Behaviour 62: oneOf nested up to 12 deep is compiled or refused; nobody waits for it meanwhile."""

    def gaps() -> list[float]:
        last, found = None, []
        for _ in client.completions.create(
            model=served.model, prompt="Once", max_tokens=400, stream=True, extra_body={"ignore_eos": True}
        ):
            now = time.monotonic()
            if last is not None:
                found.append(now - last)
            last = now
        return found

    def compile_all() -> list[int]:
        deep = [heavy(8), heavy(10), heavy(12), by_reference(12)]
        return [served.chat(response_format=schema_format(schema), max_tokens=1)[0] for schema in deep]

    with ThreadPoolExecutor(1) as pool, served.client as client:
        during = []
        task = pool.submit(compile_all)
        while not task.done():
            during += gaps()
    assert set(task.result()) <= {200, 400}
    # A busy machine makes a few gaps of its own; waiting for a compilation would make one of seconds.
    longest = sorted(during)[-4:]
    assert longest[0] < 0.2 and longest[-1] < 1, longest


@pytest.mark.slow
@pytest.mark.unsanitized("measures time")
@pytest.mark.parametrize("text", ["x" * 200_000, "lorem ipsum " * 16_000], ids=["x", "words"])
def test_streams_go_on_while_another_answer_is_a_long_constant(served: Served, text: str) -> None:
    form = schema_format({"const": text})
    with ThreadPoolExecutor(1) as pool, served.client as client:
        gaps, last, constant = [], time.monotonic(), None
        stream = client.completions.create(
            model=served.model, prompt="Once", max_tokens=480, stream=True, extra_body={"ignore_eos": True}
        )
        for _ in stream:
            now = time.monotonic()
            gaps.append(now - last)
            last = now
            if constant is None:
                constant = pool.submit(served.chat, response_format=form, max_tokens=300)
        assert constant is not None
        status, answer = constant.result()
    assert status == 200
    assert ('"' + text).startswith(answer["choices"][0]["message"]["content"])
    assert max(gaps[1:]) < 0.4, f"longest gaps {sorted(gaps)[-3:]}"


def test_a_grammar_larger_than_the_limit_is_refused(served: Served) -> None:
    many = {"enum": [f"value number {i}" for i in range(20000)]}
    status, body = served.chat(response_format=schema_format(many))
    assert status == 400 and "262144" in body["error"]["message"]
