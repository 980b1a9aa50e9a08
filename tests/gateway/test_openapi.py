"""/openapi.json and /docs: they describe what the server does, no more and no less."""

from __future__ import annotations

import asyncio
import json
import re
from dataclasses import replace
from typing import Any

import msgspec
import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, Client, run, serving

from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.openapi.operations import OPERATIONS
from octavo_gateway.protocol.chat import ChatCompletionChunk
from octavo_gateway.protocol.completions import Completion
from octavo_gateway.server.dispatch import routes
from octavo_gateway.server.handlers import Handlers
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.state import ServerState

LIMITS = {"max_choices": 3, "max_logprobs": 7, "max_stop_strings": 3, "max_prompts": 5}
BODIES: dict[str, dict[str, Any]] = {
    "/v1/chat/completions": HELLO,
    "/v1/completions": {"prompt": "Hi", "max_tokens": 3},
}


def engine() -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken("fine")))


async def fetch(client: Client) -> dict[str, Any]:
    status, headers, body = await client.get("/openapi.json")
    assert status == 200 and headers["Content-Type"].startswith("application/json")
    return body


def test_every_route_is_described() -> None:
    async def scenario() -> None:
        state = ServerState(1, 1.0)
        table = routes(Handlers(state, ApiSettings(served_names=("m",)), ServerSettings()))
        served = {(m.lower(), path) for path, methods in table.items() for m in methods}
        told = {(o.method, o.path.removesuffix("{model}")) for o in OPERATIONS}
        assert told == served

    run(scenario())


def test_references_resolve_and_ids_are_unique() -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            document = await fetch(client)
        assert document["openapi"].startswith("3.1")
        names = set(re.findall(r'"#/components/schemas/(\w+)"', json.dumps(document)))
        assert names == set(document["components"]["schemas"])
        ids = [o["operationId"] for methods in document["paths"].values() for o in methods.values()]
        assert len(set(ids)) == len(ids)

    run(scenario())


def test_choices_are_limited_by_what_runs_at_once() -> None:
    async def scenario() -> None:
        for info, most in (
            ({}, 3),
            ({"max_num_seqs": 2}, 2),
            ({"max_num_seqs": 8, "max_num_seqs_per_tenant": 1}, 1),
        ):
            scripted = engine()
            scripted.model = replace(scripted.model, engine_info={**scripted.model.engine_info, **info})
            async with serving(scripted, api=LIMITS) as client:
                schemas = (await fetch(client))["components"]["schemas"]
            for name in ("n", "best_of"):
                assert schemas["ChatCompletionRequest"]["properties"][name]["anyOf"][0]["maximum"] == most

    run(scenario())


def test_flags_and_model_set_the_limits() -> None:
    async def scenario() -> None:
        async with serving(engine(), api=LIMITS) as client:
            schemas = (await fetch(client))["components"]["schemas"]
        chat, plain = (schemas[n]["properties"] for n in ("ChatCompletionRequest", "CompletionRequest"))
        assert chat["top_logprobs"]["anyOf"][0]["maximum"] == 7
        assert plain["logprobs"]["anyOf"][0]["maximum"] == 7
        assert chat["stop"]["anyOf"][0]["anyOf"][1]["maxItems"] == 3
        assert plain["prompt"]["anyOf"][2]["maxItems"] == 5
        assert plain["prompt"]["anyOf"][1]["items"]["maximum"] == 299

    run(scenario())


def bounds(schema: dict[str, Any]) -> list[tuple[Any, bool]]:
    """Values at and beyond each limit of a number, and whether they are within."""
    given = schema["anyOf"][0] if "anyOf" in schema else schema
    step = 1 if given.get("type") == "integer" else 0.001
    values = []
    if "minimum" in given:
        values += [(given["minimum"], True), (given["minimum"] - step, False)]
    if "exclusiveMinimum" in given:
        values += [(given["exclusiveMinimum"], False), (given["exclusiveMinimum"] + step, True)]
    if "maximum" in given:
        values += [(given["maximum"], True), (given["maximum"] + step, False)]
    return values


@pytest.mark.parametrize("path", list(BODIES))
def test_the_ranges_are_those_that_are_checked(path: str) -> None:
    """Each number at its limits is accepted, and refused by name beyond them."""

    async def scenario() -> None:
        tried = 0
        async with serving(engine()) as client:
            document = await fetch(client)
            body = document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            schema = document["components"]["schemas"][body["$ref"].rsplit("/", 1)[1]]
            for name, field in schema["properties"].items():
                for value, within in bounds(field):
                    extra = {"echo": True} if (name, value) == ("max_tokens", 0) else {}
                    if name == "top_logprobs":
                        extra = {"logprobs": True}
                    if name == "min_tokens" and value == 2**31 - 1:
                        extra = {"max_tokens": value}
                    status, _, answer = await client.post(path, {**BODIES[path], **extra, name: value})
                    # 504: a millisecond may be too little.
                    assert (status in (200, 504)) == within, (name, value, answer)
                    if not within:
                        assert answer["error"]["param"] == name
                    tried += 1
        assert tried > 40

    run(scenario())


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"stream_options": {"include_usage": True}},
        {"return_token_ids": True, "prompt_logprobs": 1, "stop": "n"},
    ],
)
def test_chunks_are_as_described(fields: dict[str, Any]) -> None:
    """Every field of every event stands in the schema, with its type."""

    async def scenario() -> None:
        async with serving(engine()) as client:
            for path, shape in (
                ("/v1/chat/completions", ChatCompletionChunk),
                ("/v1/completions", Completion),
            ):
                logprobs: Any = True if "chat" in path else 1
                body = {**BODIES[path], "stream": True, "logprobs": logprobs, **fields}
                _, _, text = await client.post(path, body)
                events = [e.removeprefix("data: ") for e in text.split("\n\n") if e]
                assert events.pop() == "[DONE]" and events
                for event in events:
                    decoded = msgspec.json.decode(event, type=shape)
                    assert msgspec.to_builtins(decoded) == json.loads(event)

    run(scenario())


def test_the_page_needs_nothing_from_anywhere() -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            document = await fetch(client)
            status, headers, text = await client.get("/docs")
        assert status == 200 and headers["Content-Type"].startswith("text/html")
        assert "<script" not in text and "src=" not in text and "http" not in text.replace("HTTP", "")
        for path in document["paths"]:
            assert path in text
        for name in document["components"]["schemas"]:
            assert f"<h2 id={name}>" in text
        assert set(re.findall(r'href="#(\w+)"', text)) <= set(document["components"]["schemas"])

    run(scenario())


def test_keys_and_loading_are_told_as_they_are() -> None:
    async def scenario() -> None:
        async with serving(None) as client:
            assert (await client.get("/openapi.json"))[0] == 503
            assert (await client.get("/docs"))[0] == 503
        async with serving(engine(), server={"api_keys": ("k",)}) as client:
            assert (await client.get("/openapi.json"))[0] == 401
            headers = {"Authorization": "Bearer k"}
            _, _, document = await client.get("/openapi.json", headers=headers)
            for operation in OPERATIONS:
                told = document["paths"][operation.path][operation.method]
                path = operation.path.replace("{model}", "tiny")
                ask = client.get(path) if operation.method == "get" else client.post(path, {})
                status = (await asyncio.wait_for(ask, 5))[0]
                assert (status == 401) == ("401" in told["responses"]) == ("security" in told)

    run(scenario())
