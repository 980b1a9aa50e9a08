"""What a request may ask to see of its prompt and of its tokens: scores, ids, echo."""

from __future__ import annotations

import json
from typing import Any

import pytest
from scripted import EOS, Script, ScriptedEngine, spoken
from serving import MODEL, Client, run, serving

CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
MESSAGES = [{"role": "user", "content": "Öl"}]
RENDERED = "<user>Öl<assistant>"


def talking(text: str = "so é") -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken(text)))


def body(path: str, **fields: Any) -> dict[str, Any]:
    prompt = {"messages": MESSAGES} if path == CHAT else {"prompt": RENDERED}
    return {"model": MODEL, **prompt, **fields}


async def ask(client: Client, path: str, **fields: Any) -> Any:
    status, _, answer = await client.post(path, body(path, **fields))
    assert status == 200, answer
    return answer


async def chunks(client: Client, path: str, **fields: Any) -> list[Any]:
    _, _, text = await client.post(path, body(path, stream=True, **fields))
    events = [e.removeprefix("data: ") for e in text.split("\n\n") if e]
    assert events.pop() == "[DONE]"
    return [json.loads(e) for e in events]


@pytest.mark.parametrize("path", [CHAT, PLAIN])
@pytest.mark.parametrize("stop", [None, "never"])
def test_token_ids_streamed_and_whole(path: str, stop: str | None) -> None:
    async def scenario() -> None:
        async with serving(talking()) as client:
            fields = {"return_token_ids": True, "max_tokens": 100, "stop": stop}
            whole = await ask(client, path, **fields)
            (choice,) = whole["choices"]
            assert choice["token_ids"] == list("so é".encode())
            holder = whole if path == CHAT else choice
            assert holder["prompt_token_ids"] == list(RENDERED.encode())
            parts = await chunks(client, path, **fields)
            told = [t for c in parts for t in c["choices"][0].get("token_ids", ())]
            assert told == choice["token_ids"]
            first = parts[0] if path == CHAT else parts[0]["choices"][0]
            assert first["prompt_token_ids"] == holder["prompt_token_ids"]
            assert all(
                "prompt_token_ids" not in c and "prompt_token_ids" not in c["choices"][0] for c in parts[1:]
            )
            plain = await ask(client, path)
            assert "token_ids" not in plain["choices"][0] and "prompt_token_ids" not in {
                **plain,
                **plain["choices"][0],
            }

    run(scenario())


@pytest.mark.parametrize("path", [CHAT, PLAIN])
@pytest.mark.parametrize("top", [0, 1, 2])
def test_prompt_logprobs(path: str, top: int) -> None:
    async def scenario() -> None:
        engine = talking()
        async with serving(engine) as client:
            whole = await ask(client, path, prompt_logprobs=top)
            assert engine.submitted[-1].params.prompt_logprobs == top
            holder = whole if path == CHAT else whole["choices"][0]
            scores = holder["prompt_logprobs"]
            ids = list(RENDERED.encode())
            assert scores[0] is None and len(scores) == len(ids)
            for token, position in zip(ids[1:], scores[1:], strict=True):
                assert position[str(token)]["logprob"] == -1.0 and position[str(token)]["rank"] == 1
                assert set(position) == {str(token)} | ({str(EOS)} if top == 2 else set())
            o_umlaut = ids.index(0xC3)
            assert scores[o_umlaut]["195"]["decoded_token"] == "bytes:\\xc3"
            parts = await chunks(client, path, prompt_logprobs=top)
            first = parts[0] if path == CHAT else parts[0]["choices"][0]
            assert first["prompt_logprobs"] == scores
            plain = await ask(client, path)
            assert "prompt_logprobs" not in {**plain, **plain["choices"][0]}

    run(scenario())


def test_echo_and_prompt_logprobs_of_different_width() -> None:
    async def scenario() -> None:
        engine = talking()
        async with serving(engine) as client:
            whole = await ask(client, PLAIN, echo=True, logprobs=1, prompt_logprobs=2)
            assert engine.submitted[-1].params.prompt_logprobs == 2
            (choice,) = whole["choices"]
            assert len(choice["logprobs"]["top_logprobs"][1]) == 1
            assert len(choice["prompt_logprobs"][1]) == 2

    run(scenario())


@pytest.mark.parametrize(
    ("last", "expected"),
    [
        ({"role": "assistant", "content": "And "}, "And so é"),
        ({"role": "assistant", "content": [{"type": "text", "text": "And "}]}, "And so é"),
        ({"role": "assistant", "content": None}, "so é"),
        ({"role": "user", "content": "And "}, "so é"),
    ],
)
def test_echo_in_chat_is_what_the_assistant_said_so_far(last: dict[str, Any], expected: str) -> None:
    async def scenario() -> None:
        async with serving(talking()) as client:
            fields: dict[str, Any] = {"messages": [*MESSAGES, last], "echo": True}
            if last["role"] == "assistant" and last["content"]:
                fields["continue_final_message"] = True
            whole = await ask(client, CHAT, **fields)
            assert whole["choices"][0]["message"]["content"] == expected
            parts = await chunks(client, CHAT, **fields)
            assert "".join(c["choices"][0]["delta"].get("content", "") for c in parts) == expected
            quiet = await ask(client, CHAT, **{**fields, "echo": False})
            assert quiet["choices"][0]["message"]["content"] == "so é"

    run(scenario())


@pytest.mark.parametrize("path", [CHAT, PLAIN])
@pytest.mark.parametrize(("keep", "kept"), [(5, 5), (10**6, 400), (-1, 255)])
def test_truncation_keeps_the_end(path: str, keep: int, kept: int) -> None:
    """Behaviour 54: whatever the prompt's length, when it is asked for, and echo shows what was kept."""

    async def scenario() -> None:
        engine = talking("!")
        async with serving(engine) as client:
            text = "x" * 200 if kept == 400 else "x" * 900
            text += "y" * 20
            prompt = {"prompt": text} if path == PLAIN else {"messages": [{"role": "user", "content": text}]}
            answer = await ask(client, path, **prompt, truncate_prompt_tokens=keep, max_tokens=1)
            whole = list((text if path == PLAIN else f"<user>{text}<assistant>").encode())
            assert list(engine.submitted[-1].prompt) == whole[-min(keep % 2**32, 255) :]
            assert answer["usage"]["prompt_tokens"] == len(engine.submitted[-1].prompt)
            if path == PLAIN:
                echoed = await ask(
                    client, path, **prompt, truncate_prompt_tokens=keep, max_tokens=0, echo=True, logprobs=0
                )
                (choice,) = echoed["choices"]
                assert choice["text"] == bytes(engine.submitted[-1].prompt).decode()
                assert "".join(choice["logprobs"]["tokens"]) == choice["text"]

    run(scenario())
