"""Everything that can be refused is refused before the first byte of an answer, in one shape, naming the field."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, MODEL, run, serving

from octavo.errors import RefusedError
from octavo_gateway.api.engine import ModelInfo
from octavo_gateway.protocol.completions import CompletionRequest
from octavo_gateway.protocol.decode import decode
from octavo_gateway.protocol.errors import ApiError

ROUTE = "/v1/chat/completions"


def engine(**kwargs: Any) -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken("fine")), **kwargs)


def assert_envelope(body: Any, headers: Any) -> dict[str, Any]:
    assert (
        headers["Content-Type"] == "application/json; charset=utf-8"
        or headers["Content-Type"] == "application/json"
    )
    assert set(body) == {"error"}
    assert set(body["error"]) == {"message", "type", "param", "code"}
    assert isinstance(body["error"]["message"], str) and 0 < len(body["error"]["message"]) <= 1000
    return body["error"]


def refused(fields: dict[str, Any], param: str | None, *, status: int = 400) -> dict[str, Any]:
    """The error for `fields`, the same streamed and not, with a healthy request after it."""

    async def scenario() -> dict[str, Any]:
        async with serving(engine()) as client:
            errors = []
            for stream in (False, True):
                got, headers, body = await client.chat(**{**fields, "stream": stream})
                assert got == status, body
                errors.append(assert_envelope(body, headers))
            assert errors[0] == errors[1]
            assert errors[0]["param"] == param
            healthy, _, answer = await client.chat()
            assert healthy == 200 and answer["choices"][0]["message"]["content"] == "fine"
            return errors[0]

    return run(scenario())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"temperature": 1e6}, "temperature"),
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": "hot"}, "temperature"),
        ({"top_p": -1}, "top_p"),
        ({"top_p": 1.01}, "top_p"),
        ({"top_k": -2}, "top_k"),
        ({"top_k": 1.5}, "top_k"),
        ({"min_p": 2}, "min_p"),
        ({"repetition_penalty": 0}, "repetition_penalty"),
        ({"presence_penalty": 3}, "presence_penalty"),
        ({"frequency_penalty": -3}, "frequency_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -5}, "max_tokens"),
        ({"max_tokens": True}, "max_tokens"),
        ({"max_completion_tokens": 0}, "max_completion_tokens"),
        ({"min_tokens": -1}, "min_tokens"),
        ({"seed": 2**70}, "seed"),
        ({"stop": ["a", "b", "c", "d", "e"]}, "stop"),
        ({"stop": [""]}, "stop"),
        ({"stop": [1]}, "stop[0]"),
        ({"logit_bias": {"foo": 1}}, "logit_bias"),
        ({"logit_bias": {"1": 101}}, "logit_bias"),
        ({"logit_bias": {"-1": 1}}, "logit_bias"),
        ({"stop_token_ids": [-1]}, "stop_token_ids"),
        ({"allowed_token_ids": []}, "allowed_token_ids"),
        ({"bad_words": [""]}, "bad_words"),
        ({"logprobs": True, "top_logprobs": 21}, "top_logprobs"),
        ({"logprobs": True, "top_logprobs": -1}, "top_logprobs"),
        ({"top_logprobs": 2}, "top_logprobs"),
        ({"truncate_prompt_tokens": 0}, "truncate_prompt_tokens"),
        ({"truncate_prompt_tokens": -2}, "truncate_prompt_tokens"),
        ({"prompt_logprobs": 21}, "prompt_logprobs"),
        ({"prompt_logprobs": -1}, "prompt_logprobs"),
        ({"priority": 2**31}, "priority"),
        ({"priority": -(2**40)}, "priority"),
        ({"cache_salt": ""}, "cache_salt"),
        ({"timeout": 0}, "timeout"),
        ({"timeout": -1}, "timeout"),
        ({"timeout": 1e9}, "timeout"),
        ({"stream_options": {"include_usage": "yes"}}, "stream_options.include_usage"),
        ({"messages": "Hi"}, "messages"),
        ({"messages": []}, "messages"),
        ({"messages": [{"role": "user"}]}, "messages[0].content"),
        ({"messages": [{"content": "Hi"}]}, "messages[0].role"),
        ({"messages": [{"role": "wizard", "content": "Hi"}]}, "messages[0].role"),
        ({"continue_final_message": True}, "continue_final_message"),
        ({"continue_final_message": True, "add_generation_prompt": True}, "continue_final_message"),
        ({"chat_template_kwargs": {"fail": True}}, "messages"),
        ({"n": 129}, "n"),
        ({"n": 10**6}, "n"),
        ({"n": 0}, "n"),
        ({"n": 3, "best_of": 2}, "best_of"),
        ({"best_of": 129}, "best_of"),
        ({"response_format": {"type": "yaml"}}, "response_format.type"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
        (
            {"response_format": {"type": "json_schema", "json_schema": {"name": "x"}}},
            "response_format.json_schema.schema",
        ),
        ({"structured_outputs": {"json": {}, "regex": "a"}}, "structured_outputs"),
        ({"structured_outputs": {"choice": []}}, "structured_outputs.choice"),
        ({"structured_outputs": {"json": "{"}}, "structured_outputs.json"),
        (
            {"structured_outputs": {"regex": "a"}, "response_format": {"type": "json_object"}},
            "structured_outputs",
        ),
        (
            {"structured_outputs": {"json": {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}}},
            "structured_outputs.json",
        ),
    ],
)
def test_a_value_out_of_range_names_its_field(fields: dict[str, Any], param: str) -> None:
    """Behaviours 24, 28, 29, 31, 42, 106."""
    error = refused(fields, param)
    assert error["type"] == "invalid_request_error"


@pytest.mark.parametrize(
    ("body", "message"),
    [
        (b'{"prompt":"x","temperature":"hot"}', "temperature: a number or null is expected, got the string 'hot'."),
        (b'{"prompt":"x","stop":["a",{"b":1}]}', "stop[1]: a string is expected, got an object."),
        (b'{"prompt":"x","stream":1}', "stream: true or false or null is expected, got 1."),
        (b'{"prompt":"x","logit_bias":{"1":"much"}}', "logit_bias[...]: a number is expected, got a string."),
        (b'{"prompt":"x","user":1e999,"max_tokens":"9"}', "max_tokens: an integer or null is expected, got a string."),
        (b"[1]", "The body: an object is expected, got an array."),
    ],
)  # fmt: skip
def test_a_value_of_a_wrong_type_is_shown_in_the_words_of_json(body: bytes, message: str) -> None:
    with pytest.raises(ApiError) as caught:
        decode(body, CompletionRequest)
    assert caught.value.body.message == message


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"guided_json": {"type": "object"}}, "guided_json"),
        ({"guided_decoding_backend": "x"}, "guided_decoding_backend"),
        ({"guided_json": {}}, "guided_json"),
        ({"guided_json": ""}, "guided_json"),
        ({"guided_regex": ""}, "guided_regex"),
        ({"guided_choice": []}, "guided_choice"),
        ({"guided_grammar": ""}, "guided_grammar"),
        ({"guided_json_object": False}, "guided_json_object"),
        ({"functions": [{"name": "f"}]}, "functions"),
        ({"modalities": ["text", "audio"]}, "modalities"),
        ({"audio": {"voice": "x"}}, "audio"),
        ({"use_beam_search": True}, "use_beam_search"),
        ({"chat_template": "{{ messages }}"}, "chat_template"),
    ],
)
def test_what_is_not_there_yet_is_refused_by_name(fields: dict[str, Any], param: str) -> None:
    refused(fields, param)


@pytest.mark.parametrize(
    "fields",
    [
        {"n": 1, "best_of": 1},
        {"tools": [], "tool_choice": "none", "parallel_tool_calls": True},
        {"tools": None, "tool_choice": "auto"},
        {"response_format": {"type": "text"}, "structured_outputs": {}},
        {"top_logprobs": 0},
        {"stop": None, "seed": None, "temperature": None, "max_tokens": None},
        {"stop": []},
        {"stream_options": {"include_usage": True}},
        {"functions": [], "function_call": "none", "guided_json": None, "guided_choice": None},
        {"user": "u", "store": True, "metadata": {"a": "b"}, "service_tier": "auto", "verbosity": "low"},
        {"prediction": None, "prompt_cache_key": "k", "safety_identifier": "s"},
        {"something_new": {"deep": [1, 2]}},
        {"modalities": ["text"], "audio": None, "reasoning_effort": None},
        {"logit_bias": {}, "structured_outputs": None, "echo": False, "prompt_logprobs": None},
        {"model": None},
        {"top_p": 0, "temperature": 0},
        {"top_k": -1},
        {"top_k": 10**9},
        {"max_tokens": 16.0, "top_k": 1e3, "stop_token_ids": [1.0]},
    ],
)
def test_a_value_that_asks_for_nothing_is_accepted(fields: dict[str, Any]) -> None:
    """Behaviours 23 and 25 among them."""

    async def scenario() -> None:
        async with serving(engine()) as client:
            status, _, body = await client.chat(**fields)
            assert status == 200, body
            assert body["choices"][0]["message"]["content"] == "fine"

    run(scenario())


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"   ",
        b"not json",
        b"[]",
        b'"text"',
        b"{",
        b'{"messages":[{"role":"user","content":"\xc4\xe3"}]}',
        b'{"x":"\xff","messages":[{"role":"user","content":"a"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"a \\udc00 b"}]}',
        b'{"messages":[{"role":"user","content":"\\ud800\\ud800"}]}',
        b'{"messages":[{"role":"user","content":"a\x00b"}]}',
        b'\xef\xbb\xbf{"messages":[{"role":"user","content":"a"}]}',
        b'{"temperature":NaN,"messages":[{"role":"user","content":"a"}]}',
        b'{"temperature":Infinity,"messages":[{"role":"user","content":"a"}]}',
        b'{"temperature":1e400,"messages":[{"role":"user","content":"a"}]}',
        b'{"metadata":' + b"[" * 200 + b"]" * 200 + b',"messages":[{"role":"user","content":"a"}]}',
        b"[" * 100_000,
        b'{"a":' * 100_000,
    ],
)
def test_malformed_bodies(body: bytes) -> None:
    """Behaviours 24, 34, 55."""

    async def scenario() -> None:
        async with serving(engine()) as client:
            status, headers, answer = await client.post(ROUTE, body)
            assert status == 400, answer
            assert_envelope(answer, headers)
            status, _, _ = await client.chat()
            assert status == 200

    run(scenario())


def test_brackets_inside_strings_are_not_nesting() -> None:
    async def scenario() -> None:
        async with serving(engine(model=ModelInfo("scripted", 4096))) as client:
            text = "[" * 1000 + '\\"{' + "\\\\" + "{" * 1000
            status, _, body = await client.chat(messages=[{"role": "user", "content": text}])
            assert status == 200, body

    run(scenario())


def test_rejected_requests_leave_no_trace() -> None:
    """Behaviour 32."""
    bad = [{"top_p": 7}, {"stop": [""]}, {"messages": []}, {"n": 300}, {"temperature": "x"}]

    async def scenario() -> None:
        async with serving(engine()) as client:
            _, _, before = await client.chat()
            for i in range(200):
                status, _, _ = await client.chat(**bad[i % len(bad)])
                assert status == 400
            _, _, after = await client.chat()
            assert before["choices"] == after["choices"] and before["usage"] == after["usage"]
            _, _, metrics = await client.get("/metrics")
            assert 'octavo:requests_refused_total{engine="0",model_name="tiny",status="400"} 200.0' in metrics

    run(scenario())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("stop", ["x"] * 500_000),
        ("bad_words", ["word"] * 50_000),
        ("stop_token_ids", [1] * 500_000),
        ("allowed_token_ids", [1] * 500_000),
        ("logit_bias", {str(i): 1 for i in range(100_000)}),
        ("messages", [{"role": "user", "content": ""}] * 200_000),
    ],
)
def test_a_long_list_is_refused_quickly(name: str, value: Any) -> None:
    """Behaviour 42."""

    async def scenario() -> None:
        async with serving(engine()) as client:
            body = json.dumps({**HELLO, name: value}).encode()
            start = time.perf_counter()
            status, _, answer = await client.post(ROUTE, body)
            assert status == 400 and answer["error"]["param"] == name
            assert len(json.dumps(answer)) < 2000
            assert time.perf_counter() - start < 1.0

    run(scenario())


def test_a_prompt_beyond_the_window() -> None:
    """Behaviour 54: with the code and the words that clients match on."""
    error = refused({"messages": [{"role": "user", "content": "x" * 300}]}, "messages")
    assert error["code"] == "context_length_exceeded"
    assert "maximum context length is 256 tokens" in error["message"]


def test_text_that_cannot_fit_is_not_tokenized() -> None:
    async def scenario() -> None:
        scripted = engine()
        calls: list[int] = []
        tokenizer = scripted.tokenizer
        encode = tokenizer.encode_chat
        tokenizer.encode_chat = lambda *a, **k: calls.append(1) or encode(*a, **k)  # type: ignore[assignment]
        long = {"messages": [{"role": "user", "content": "x" * 10_000}]}
        async with serving(scripted) as client:
            status, _, body = await client.chat(**long)
            assert (status, calls) == (400, [])
            assert "maximum context length is 256 tokens" in body["error"]["message"]
        async with serving(scripted, api={"length_shortcut": False}) as client:
            status, _, _ = await client.chat(**long)
            assert (status, calls) == (400, [1])

    run(scenario())


def test_truncation_only_where_asked_for() -> None:
    async def scenario() -> None:
        scripted = engine()
        async with serving(scripted) as client:
            long = [{"role": "user", "content": "x" * 250}]
            status, _, body = await client.chat(messages=long, truncate_prompt_tokens=20)
            assert status == 200, body
            assert body["usage"]["prompt_tokens"] == 20
            assert bytes(scripted.submitted[0].prompt).decode() == "x" * 9 + "<assistant>"

    run(scenario())


@pytest.mark.parametrize("field", ["max_tokens", "max_completion_tokens"])
def test_max_tokens_beyond_the_window_is_clamped_or_refused(field: str) -> None:
    """Behaviour 53."""

    async def scenario() -> None:
        talker = ScriptedEngine(Script(steps=spoken("z" * 300)))
        async with serving(talker) as client:
            status, _, body = await client.chat(**{field: 4096})
            assert status == 200 and body["choices"][0]["finish_reason"] == "length"
            assert body["usage"]["total_tokens"] == 256
        async with serving(talker, api={"strict_max_tokens": True}) as client:
            status, _, body = await client.chat(**{field: 4096})
            assert status == 400 and body["error"]["code"] == "context_length_exceeded"
            assert body["error"]["param"] == field
            assert "maximum context length is 256 tokens" in body["error"]["message"]

    run(scenario())


def test_max_tokens_beyond_the_cache_are_refused_in_strict_mode() -> None:
    """Behaviour 53: 64 blocks of 16 tokens among 8 choices."""

    async def scenario() -> None:
        talker = ScriptedEngine(Script(steps=spoken("z" * 300)))
        async with serving(talker, api={"strict_max_tokens": True}) as client:
            for choices, most, refused in ((1, 200, False), (8, 100, False), (8, 200, True)):
                asked = {"prompt": "12345678", "n": choices, "max_tokens": most}
                status, _, body = await client.post("/v1/completions", asked)
                assert status == (400 if refused else 200), body
            error = body["error"]
            assert (error["code"], error["param"]) == ("context_length_exceeded", "max_tokens")
            assert (
                "the cache holds 1024 tokens, which leaves each of 8 sequences 120 behind an input of 8, and "
                "max_tokens asks for 200"
            ) in error["message"]

    run(scenario())


def test_max_tokens_is_enforced_and_the_newer_field_wins() -> None:
    """Behaviour 106."""

    async def scenario() -> None:
        async with serving(engine()) as client:
            _, _, body = await client.chat(max_tokens=1)
            assert body["choices"][0]["message"]["content"] == "f"
            assert body["choices"][0]["finish_reason"] == "length"
            _, _, body = await client.chat(max_tokens=1, max_completion_tokens=2)
            assert body["choices"][0]["message"]["content"] == "fi"

    run(scenario())


@pytest.mark.parametrize(
    ("code", "param", "status", "api_code", "api_param"),
    [
        ("capacity", "prompt", 400, "context_length_exceeded", "messages"),
        ("context_length_exceeded", "prompt", 400, "context_length_exceeded", "messages"),
        ("invalid_argument", "logprobs", 400, None, "top_logprobs"),
        ("invalid_argument", "max_tokens", 400, None, "max_completion_tokens"),
        ("overloaded", "", 429, "rate_limit_exceeded", None),
        ("shutdown", "", 503, "service_unavailable", None),
        ("internal", "", 500, "internal_error", None),
    ],
)
def test_refusals_of_the_engine(
    code: str, param: str, status: int, api_code: str | None, api_param: str | None
) -> None:
    """Behaviours 1 and 97: a stream that the engine does not accept is a real status, at once."""

    async def scenario() -> None:
        refusal = RefusedError("no: the pool holds 800 tokens", code=code, param=param, limit=800)
        async with serving(engine(refuse=refusal)) as client:
            got, headers, body = await client.chat(stream=True, max_completion_tokens=5)
            error = assert_envelope(body, headers)
            assert (got, error["code"], error["param"]) == (status, api_code, api_param)
            assert ("Retry-After" in headers) == (status in (429, 503))
            if api_code == "context_length_exceeded":
                assert "maximum context length is 800 tokens" in error["message"]

    run(scenario())


def test_an_unknown_model_is_a_404() -> None:
    error = refused({"model": "gpt-4"}, "model", status=404)
    assert error["code"] == "model_not_found" and "'tiny'" in error["message"]


@pytest.mark.parametrize(
    ("method", "path", "status"),
    [
        ("GET", "/nowhere", 404),
        ("GET", "/v1/models/nowhere", 404),
        ("GET", ROUTE, 405),
        ("DELETE", "/v1/models", 405),
        ("OPTIONS", ROUTE, 405),
        ("PUT", "/health", 405),
    ],
)
def test_every_status_has_the_envelope(method: str, path: str, status: int) -> None:
    """Behaviours 55 and 108."""

    async def scenario() -> None:
        async with serving(engine()) as client, client.session.request(method, client.base + path) as r:
            assert r.status == status
            assert_envelope(await r.json(), r.headers)
            assert ("Allow" in r.headers) == (status == 405)

    run(scenario())


def test_malformed_http_has_the_envelope() -> None:
    async def scenario() -> None:
        import asyncio

        async with serving(engine()) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(b"GET / HTTP/1.1\r\nbroken header\r\n\r\n")
            answer = (await reader.read()).decode()
            writer.close()
            head, _, body = answer.partition("\r\n\r\n")
            assert " 400 " in head.splitlines()[0] and "application/json" in head
            assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}

    run(scenario())


def test_a_body_too_large_is_refused_before_it_is_read() -> None:
    async def scenario() -> None:
        import asyncio

        async with serving(engine(), server={"max_body_bytes": 10_000}) as client:
            status, headers, body = await client.post(ROUTE, b"x" * 10_001)
            assert status == 413
            assert_envelope(body, headers)

            async def chunks() -> Any:
                for _ in range(20):
                    yield b"x" * 1000

            async with client.session.post(client.base + ROUTE, data=chunks()) as r:
                assert r.status == 413
            # Declared, never sent: the answer does not wait for it.
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(
                f"POST {ROUTE} HTTP/1.1\r\nHost: x\r\nContent-Length: 99999\r\nExpect: 100-continue\r\n\r\n".encode()
            )
            assert b" 413 " in await asyncio.wait_for(reader.readline(), 2)
            writer.close()

    run(scenario())


def test_expect_continue_is_honoured() -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            data = json.dumps(HELLO).encode()
            async with client.session.post(client.base + ROUTE, data=data, expect100=True) as r:
                assert r.status == 200

    run(scenario())


def test_errors_never_carry_the_input_back() -> None:
    """Behaviour 57."""

    async def scenario() -> None:
        async with serving(engine()) as client:
            for fields in (
                {"model": "m" * 100_000},
                {"temperature": "t" * 100_000},
                {"logit_bias": {"k" * 100_000: 1}},
            ):
                status, _, body = await client.chat(**fields)
                assert status in (400, 404) and len(json.dumps(body)) < 2000

    run(scenario())


def test_a_fault_inside_is_a_500_that_says_nothing() -> None:
    async def scenario() -> None:
        broken = engine()
        broken.submit = lambda *a, **k: 1 / 0  # type: ignore[assignment]
        async with serving(broken) as client:
            status, headers, body = await client.chat()
            assert status == 500
            assert "ZeroDivision" not in json.dumps(body) and "division" not in json.dumps(body)
            assert_envelope(body, headers)
            assert MODEL  # the server lives on
            assert (await client.get("/health"))[0] == 200

    run(scenario())


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("prompt", b"[" + b",".join([b"[1]"] * 2_000_000) + b"]"),
        ("prompt", b"[" + b",".join([b'"a"'] * 2_000_000) + b"]"),
        ("metadata", b"[" + b",".join([b"{}"] * 2_000_000) + b"]"),
        ("logit_bias", b"{" + b",".join([b'"%d":1' % i for i in range(1_000_000)]) + b"}"),
    ],
)
def test_a_body_of_a_million_values_is_refused_before_it_is_decoded(name: str, value: bytes) -> None:
    """Behaviour 88's kind: decoding holds the interpreter's lock, and everyone's stream with it."""
    text = b'"' + b'[{\\"' * 400_000 + b'"'  # brackets and quotes within a string are text
    body = b'{"user":%s,"%s":%s}' % (text, name.encode(), value)
    start = time.perf_counter()
    with pytest.raises(ApiError) as refused:
        decode(body, CompletionRequest)
    assert time.perf_counter() - start < 1.0
    assert refused.value.status == 400 and refused.value.body.param == name
    assert decode(b'{"prompt":%s}' % text, CompletionRequest).prompt == '[{"' * 400_000
