"""POST /v1/completions: its prompts, echo, and the legacy shape of logprobs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import MODEL, Client, run, serving

ROUTE = "/v1/completions"
PROMPT = "Zwölf 🌍"


def talking(text: str = " and é.") -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken(text), cached_tokens=2))


async def complete(client: Client, **fields: Any) -> tuple[int, Any]:
    status, _, body = await client.post(ROUTE, {"model": MODEL, "prompt": PROMPT, **fields})
    return status, body


async def chunks(client: Client, **fields: Any) -> list[dict[str, Any]]:
    _, _, text = await client.post(ROUTE, {"model": MODEL, "prompt": PROMPT, "stream": True, **fields})
    lines = [line for line in text.split("\n") if line]
    assert lines[-1] == "data: [DONE]"
    return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]


def test_streamed_and_whole_say_the_same() -> None:
    async def scenario() -> None:
        async with serving(talking()) as client:
            for fields in ({}, {"echo": True}, {"logprobs": 1}, {"echo": True, "logprobs": 1}):
                status, whole = await complete(client, **fields)
                assert status == 200, whole
                (choice,) = whole["choices"]
                assert choice["text"] == (PROMPT if fields.get("echo") else "") + " and é."
                parts = [c["choices"][0] for c in await chunks(client, **fields)]
                assert "".join(p["text"] for p in parts) == choice["text"]
                assert [p["finish_reason"] for p in parts] == [None] * (len(parts) - 1) + ["stop"]
                if "logprobs" in fields:
                    for key, value in choice["logprobs"].items():
                        assert [x for p in parts if p["logprobs"] for x in p["logprobs"][key]] == value

    run(scenario())


@pytest.mark.parametrize("max_tokens", [0, 1, 30])
def test_echo_with_logprobs_is_aligned(max_tokens: int) -> None:
    """Behaviours 51 and 52; what lm-eval asks for."""

    async def scenario() -> None:
        engine = talking()
        async with serving(engine) as client:
            status, body = await complete(client, echo=True, logprobs=1, max_tokens=max_tokens)
            assert status == 200, body
            (choice,) = body["choices"]
            logprobs = choice["logprobs"]
            assert len({len(v) for v in logprobs.values()}) == 1
            assert "".join(logprobs["tokens"]) == choice["text"]
            offsets = logprobs["text_offset"]
            assert offsets == sorted(offsets) and offsets[0] == 0
            assert all(
                choice["text"][start:].startswith(token)
                for token, start in zip(logprobs["tokens"], offsets, strict=True)
            )
            n = len(PROMPT.encode())
            assert logprobs["token_logprobs"][0] is None and logprobs["top_logprobs"][0] is None
            assert logprobs["token_logprobs"][1:n] == [-1.0] * (n - 1)
            assert body["usage"]["completion_tokens"] == len(logprobs["tokens"]) - n
            # The chosen token stands among the best under the string that `tokens` has for it.
            for token, best in zip(logprobs["tokens"][1:], logprobs["top_logprobs"][1:], strict=True):
                assert token in best
            if max_tokens == 0:
                assert choice["text"] == PROMPT and choice["finish_reason"] == "length"

    run(scenario())


def test_every_form_of_prompt() -> None:
    async def scenario() -> None:
        engine = talking("!")
        async with serving(engine) as client:
            ids = list(PROMPT.encode())
            for prompt in (PROMPT, ids, [PROMPT], [ids]):
                status, body = await complete(client, prompt=prompt, echo=True)
                assert status == 200, body
                assert [c["text"] for c in body["choices"]] == [PROMPT + "!"]
                assert list(engine.submitted[-1].prompt) == ids

    run(scenario())


def test_several_prompts_keep_their_order() -> None:
    async def scenario() -> None:
        def script(prompt: Any) -> Script:
            text = bytes(prompt).decode().upper()
            return Script(
                steps=spoken(text), first_step_seconds=0.1 if text == "AA" else 0.0, step_seconds=0.01
            )

        async with serving(ScriptedEngine(script)) as client:
            prompts = ["aa", "bb", "cc"]
            status, body = await complete(client, prompt=prompts)
            assert status == 200
            assert [(c["index"], c["text"]) for c in body["choices"]] == [(0, "AA"), (1, "BB"), (2, "CC")]
            assert body["usage"] == {
                "prompt_tokens": 6,
                "completion_tokens": 6,
                "total_tokens": 12,
                "prompt_tokens_details": {"cached_tokens": 0},
            }
            parts = await chunks(client, prompt=prompts, stream_options={"include_usage": True})
            assert parts[-1]["choices"] == [] and parts[-1]["usage"]["total_tokens"] == 12
            for i, prompt in enumerate(prompts):
                mine = [c["choices"][0] for c in parts[:-1] if c["choices"][0]["index"] == i]
                assert "".join(p["text"] for p in mine) == prompt.upper()
                assert [p["finish_reason"] for p in mine].count("stop") == 1
            assert parts[0]["choices"][0]["index"] != 0  # nobody waits for the slow one

    run(scenario())


def test_an_error_of_one_prompt_ends_the_request_and_frees_the_others() -> None:
    async def scenario() -> None:
        def script(prompt: Any) -> Script:
            if bytes(prompt) == b"bad":
                return Script(error=("internal", "", "the step failed"))
            return Script(steps=spoken("x" * 100), step_seconds=0.05)

        engine = ScriptedEngine(script)
        async with serving(engine) as client:
            status, body = await complete(client, prompt=["good", "bad", "good"], max_tokens=100)
            assert status == 500 and body["error"]["code"] == "internal_error"
            assert [s.cancelled for s in engine.submitted] == [True, False, True]

    run(scenario())


def test_max_tokens_defaults_to_16() -> None:
    async def scenario() -> None:
        async with serving(talking("y" * 50)) as client:
            _, body = await complete(client)
            assert body["choices"][0]["text"] == "y" * 16
            assert body["choices"][0]["finish_reason"] == "length"

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"prompt": ""}, "prompt"),
        ({"prompt": []}, "prompt"),
        ({"prompt": [""]}, "prompt[0]"),
        ({"prompt": [[]]}, "prompt[0]"),
        ({"prompt": [[], [1]]}, "prompt[0]"),
        ({"prompt": [999999]}, "prompt"),
        ({"prompt": [-1]}, "prompt"),
        ({"prompt": [[1], [300]]}, "prompt[1]"),
        ({"prompt": [True]}, "prompt[0]"),
        ({"prompt": [1.5]}, "prompt[0]"),
        ({"prompt": [1, "a"]}, "prompt"),
        ({"prompt": None}, "prompt"),
        ({"prompt": {"a": 1}}, "prompt"),
        ({"prompt": ["a"] * 129}, "prompt"),
        ({"prompt": "x" * 300}, "prompt"),
        ({"suffix": "tail"}, "suffix"),
        ({"best_of": 2, "n": 3}, "best_of"),
        ({"logprobs": 21}, "logprobs"),
        ({"logprobs": -1}, "logprobs"),
        ({"logprobs": True}, "logprobs"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"max_tokens": -1, "echo": True}, "max_tokens"),
        ({"response_format": {"type": "json_schema"}}, "response_format.json_schema"),
    ],
)
def test_refusals(fields: dict[str, Any], param: str) -> None:
    """Behaviours 30 and 31."""

    async def scenario() -> None:
        engine = talking()
        async with serving(engine) as client:
            for stream in (False, True):
                status, body = await complete(client, **{**fields, "stream": stream})
                assert status == 400, body
                assert body["error"]["param"] == param
            assert not any(s.cancelled for s in engine.submitted)
            assert (await complete(client))[0] == 200

    run(scenario())


def test_prompts_count_one_by_one_against_the_queue() -> None:
    async def scenario() -> None:
        async with serving(talking(), server={"max_concurrent": 3}) as client:
            assert (await complete(client, prompt=["a"] * 4))[0] == 429
            assert (await complete(client, prompt=["a"] * 3))[0] == 200

    run(scenario())


@pytest.mark.parametrize(
    "fields", [{"suffix": None}, {"suffix": ""}, {"best_of": 1}, {"n": 1}, {"echo": False}]
)
def test_harmless_extras(fields: dict[str, Any]) -> None:
    async def scenario() -> None:
        async with serving(talking()) as client:
            assert (await complete(client, **fields))[0] == 200

    run(scenario())
