"""Several choices per prompt: their indices, one finish for each, one usage for all (behaviour 44)."""

from __future__ import annotations

import json
from collections import defaultdict
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, run, serving

TEXT = "Grüße!"
PATHS = {"chat": "/v1/chat/completions", "completions": "/v1/completions"}


def body(route: str, **fields: Any) -> dict[str, Any]:
    return {**(HELLO if route == "chat" else {"prompt": ["Hi", "Ho"], "max_tokens": 50}), **fields}


def text_of(choice: dict[str, Any]) -> str:
    part = choice.get("delta") or choice.get("message") or choice
    return part.get("content") or part.get("text") or ""


@pytest.mark.parametrize("route", PATHS)
def test_every_index_has_its_text_and_one_finish(route: str) -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken(TEXT), step_seconds=0.002))) as client:
            _, _, whole = await client.post(PATHS[route], body(route, n=3))
            _, _, events = await client.post(
                PATHS[route], body(route, n=3, stream=True, stream_options={"include_usage": True})
            )
        indices = list(range(3 if route == "chat" else 6))
        assert [c["index"] for c in whole["choices"]] == indices
        assert all(text_of(c) == TEXT and c["finish_reason"] == "stop" for c in whole["choices"])

        chunks = [json.loads(e.removeprefix("data: ")) for e in events.split("\n\n")[:-2]]
        assert chunks[-1]["choices"] == [] and chunks[-1]["usage"] == whole["usage"]
        texts, finishes, roles = defaultdict(str), defaultdict(list), defaultdict(int)
        for chunk in chunks[:-1]:
            (choice,) = chunk["choices"]
            index = choice["index"]
            assert not finishes[index], "a choice went on after its finish"
            texts[index] += text_of(choice)
            roles[index] += "role" in choice.get("delta", {})
            if choice["finish_reason"] is not None:
                finishes[index].append(choice["finish_reason"])
        assert texts == {i: TEXT for i in indices}
        assert finishes == {i: ["stop"] for i in indices}
        if route == "chat":
            assert roles == {i: 1 for i in indices}

        prompts = 1 if route == "chat" else 2
        usage = whole["usage"]
        assert usage["completion_tokens"] == 3 * prompts * len(TEXT.encode())
        assert usage["total_tokens"] == usage["prompt_tokens"] + usage["completion_tokens"]

    run(scenario())


def test_each_choice_echoes_the_prompt_with_its_scores() -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("ab")))) as client:
            _, _, answer = await client.post(
                "/v1/completions",
                {"prompt": "Hi", "n": 2, "echo": True, "logprobs": 1, "prompt_logprobs": 0},
            )
        first, second = answer["choices"]
        assert first["text"] == "Hiab"
        assert len(first["logprobs"]["tokens"]) == 4 and len(first["prompt_logprobs"]) == 2
        assert {k: v for k, v in first.items() if k != "index"} == {
            k: v for k, v in second.items() if k != "index"
        }

    run(scenario())


def test_the_engine_gets_n_and_best_of() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(Script(steps=spoken("x")))
        async with serving(engine) as client:
            status, _, answer = await client.chat(n=2, best_of=5)
            assert status == 200 and len(answer["choices"]) == 2
        params = engine.submitted[0].params
        assert (params.n, params.best_of) == (2, 5)

    run(scenario())


def test_best_of_cannot_be_streamed() -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("x")))) as client:
            status, _, answer = await client.chat(n=2, best_of=3, stream=True)
            assert status == 400 and answer["error"]["param"] == "best_of"
            assert (await client.chat(n=2, best_of=2, stream=True))[0] == 200

    run(scenario())


def test_an_error_ends_every_choice() -> None:
    async def scenario() -> None:
        script = Script(steps=spoken("ab"), error=("internal", "step", "a step failed"))
        async with serving(ScriptedEngine(script)) as client:
            status, _, answer = await client.chat(n=2)
            assert status == 500 and "choices" not in answer
            assert client.state.metrics.finished["error"] == 1

    run(scenario())
