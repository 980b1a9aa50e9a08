"""Where a sampling value comes from: request, command line, model, API, in this order. And what becomes of messages."""

from __future__ import annotations

from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import run, serving

from octavo_gateway.api.engine import ModelInfo
from octavo_gateway.protocol.errors import ApiError

CONFIG = {"temperature": 0.1, "top_k": 1, "max_tokens": 2}


def engine() -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken("fine")), model=ModelInfo("scripted", 256, CONFIG))


async def effective(api: dict[str, Any], **fields: Any) -> dict[str, Any]:
    scripted = engine()
    async with serving(scripted, api=api) as client:
        status, _, body = await client.chat(**fields)
        assert status == 200, body
        return vars(scripted.submitted[0].params)


@pytest.mark.parametrize(
    ("api", "fields", "expected"),
    [
        ({}, {}, {"temperature": 0.1, "top_k": 1, "max_tokens": 2, "top_p": 1.0}),
        ({}, {"temperature": 0.9}, {"temperature": 0.9, "top_k": 1}),
        (
            {},
            {"temperature": 0, "top_k": 0, "max_tokens": 7},
            {"temperature": 0, "top_k": 0, "max_tokens": 7},
        ),
        ({"default_sampling": {"temperature": 0.5}}, {}, {"temperature": 0.5, "top_k": 1}),
        ({"default_sampling": {"temperature": 0.5}}, {"temperature": 0.7}, {"temperature": 0.7}),
        ({"default_sampling": {"max_tokens": 3}}, {}, {"max_tokens": 3}),
        ({"use_generation_config": False}, {}, {"temperature": 1.0, "top_k": 0, "max_tokens": None}),
    ],
)
def test_the_chain_of_defaults(api: dict[str, Any], fields: dict[str, Any], expected: dict[str, Any]) -> None:
    """Behaviour 79."""

    async def scenario() -> None:
        values = await effective(api, **fields)
        assert {k: values[k] for k in expected} == expected

    run(scenario())


@pytest.mark.parametrize("defaults", [{"temperature": -1}, {"nonsense": 1}, {"top_p": "x"}])
def test_bad_defaults_are_refused_at_the_start(defaults: dict[str, Any]) -> None:
    async def scenario() -> None:
        with pytest.raises(ApiError) as e:
            async with serving(engine(), api={"default_sampling": defaults}):
                pass
        assert e.value.body.param == next(iter(defaults))

    run(scenario())


def test_the_salt_is_a_namespace() -> None:
    """Behaviour 12: salts never share, the same salt does."""

    async def scenario() -> None:
        scripted = engine()
        async with serving(scripted) as client:
            for salt in ("a", "b", "a", None):
                await client.chat(cache_salt=salt)
        a, b, again, public = (s.namespace for s in scripted.submitted)
        assert a == again and public == 0 and len({a, b, public}) == 3

    run(scenario())


def prompt_of(messages: list[dict[str, Any]], **fields: Any) -> str:
    async def scenario() -> str:
        async with serving(engine()) as client:
            status, _, body = await client.post("/tokenize", {"messages": messages, **fields})
            assert status == 200, body
            return bytes(body["tokens"]).decode()

    return run(scenario())


def test_null_content_never_becomes_none() -> None:
    """Behaviour 75."""
    call = {"id": "c", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    history = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None},
        {"role": "tool", "tool_call_id": "c", "content": None},
        {"role": "assistant", "content": "", "tool_calls": []},
    ]
    assert prompt_of(history) == "<user>Hi<assistant><tool><assistant><assistant>"


def test_a_message_may_be_continued() -> None:
    history = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Well"}]
    text = prompt_of(history, continue_final_message=True)
    assert text == "<user>Hi<assistant>Well"
