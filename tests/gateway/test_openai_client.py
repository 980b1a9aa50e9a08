"""The official Python client against the server: what it parses, and which of its exceptions each refusal becomes."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import MODEL, run, serving
from transcripts import ADD, TOOLS, TWO, WEATHER, saying

openai = pytest.importorskip("openai")

TEXT = "Paris, naturally 🗼."
MESSAGES: Any = [{"role": "user", "content": "What is the capital of France?"}]


@asynccontextmanager
async def connected(engine: ScriptedEngine, **settings: Any) -> AsyncIterator[Any]:
    async with (
        serving(engine, **settings) as client,
        openai.AsyncOpenAI(base_url=client.base + "/v1", api_key="secret", max_retries=0) as sdk,
    ):
        yield sdk


def talking(**script: Any) -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken(TEXT), **script))


def test_chat_whole_and_streamed() -> None:
    async def scenario() -> None:
        async with connected(talking(cached_tokens=3), server={"api_keys": ("secret",)}) as sdk:
            whole = await sdk.chat.completions.create(
                model=MODEL, messages=MESSAGES, logprobs=True, top_logprobs=1
            )
            stream = await sdk.chat.completions.create(
                model=MODEL,
                messages=MESSAGES,
                logprobs=True,
                top_logprobs=1,
                stream=True,
                stream_options={"include_usage": True},
            )
            chunks = [chunk async for chunk in stream]
        assert whole.choices[0].message.content == TEXT
        assert whole.choices[0].finish_reason == "stop"
        assert whole.usage.prompt_tokens_details.cached_tokens == 3
        text = "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)
        assert text == TEXT
        assert chunks[0].choices[0].delta.role == "assistant"
        assert [c.choices[0].finish_reason for c in chunks if c.choices and c.choices[0].finish_reason] == [
            "stop"
        ]
        assert chunks[-1].usage == whole.usage
        told = [
            e for c in chunks if c.choices and c.choices[0].logprobs for e in c.choices[0].logprobs.content
        ]
        assert told == whole.choices[0].logprobs.content

    run(scenario())


def test_the_stream_helper() -> None:
    async def scenario() -> None:
        async with (
            connected(talking()) as sdk,
            sdk.chat.completions.stream(model=MODEL, messages=MESSAGES) as stream,
        ):
            kinds = [event.type async for event in stream]
            final = await stream.get_final_completion()
        assert kinds.count("content.done") == 1
        assert final.choices[0].message.content == TEXT

    run(scenario())


def test_completions_whole_and_streamed() -> None:
    async def scenario() -> None:
        async with connected(talking()) as sdk:
            whole = await sdk.completions.create(
                model=MODEL, prompt="Hi", echo=True, logprobs=1, max_tokens=50
            )
            stream = await sdk.completions.create(model=MODEL, prompt="Hi", max_tokens=50, stream=True)
            text = "".join([c.choices[0].text async for c in stream])
        assert whole.choices[0].text == "Hi" + TEXT and text == TEXT
        assert whole.choices[0].logprobs.token_logprobs[0] is None

    run(scenario())


def test_models() -> None:
    async def scenario() -> None:
        async with connected(talking()) as sdk:
            assert [m.id async for m in sdk.models.list()] == [MODEL, "alias/with-slash"]
            assert (await sdk.models.retrieve(MODEL)).max_model_len == 256

    run(scenario())


@pytest.mark.parametrize(
    ("fields", "exception"),
    [
        ({"model": "gpt-4"}, "NotFoundError"),
        ({"temperature": 1e6}, "BadRequestError"),
        ({"messages": [{"role": "user", "content": "x" * 300}]}, "BadRequestError"),
    ],
)
def test_refusals_are_the_clients_exceptions(fields: dict[str, Any], exception: str) -> None:
    async def scenario() -> None:
        async with connected(talking()) as sdk:
            for stream in (False, True):
                asked = {"model": MODEL, "messages": MESSAGES, "stream": stream, **fields}
                with pytest.raises(getattr(openai, exception)) as e:
                    await sdk.chat.completions.create(**asked)
                assert e.value.body["message"] and "(no body)" not in str(e.value)

    run(scenario())


def test_a_wrong_key_and_a_full_queue() -> None:
    async def scenario() -> None:
        async with connected(talking(), server={"api_keys": ("other",)}) as sdk:
            with pytest.raises(openai.AuthenticationError):
                await sdk.models.list()
        async with connected(talking(), server={"max_concurrent": 0}) as sdk:
            with pytest.raises(openai.RateLimitError):
                await sdk.chat.completions.create(model=MODEL, messages=MESSAGES)

    run(scenario())


def test_a_fault_in_the_stream_is_an_api_error() -> None:
    """Behaviour 97."""

    async def scenario() -> None:
        async with connected(talking(error=("internal", "", "the step failed"))) as sdk:
            stream = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            with pytest.raises(openai.APIError, match="the step failed"):
                async for _ in stream:
                    pass

    run(scenario())


@pytest.mark.slow
def test_keep_alive_comments_do_not_disturb_the_client() -> None:
    """Behaviour 96."""

    async def scenario() -> None:
        engine = talking(first_step_seconds=0.2, step_seconds=0.03)
        async with connected(engine, api={"keep_alive_seconds": 0.02}) as sdk:
            stream = await sdk.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
            assert "".join([c.choices[0].delta.content or "" async for c in stream]) == TEXT

    run(scenario())


def test_the_stream_helper_puts_calls_together() -> None:
    """Behaviour 71."""

    async def scenario() -> None:
        async with connected(saying(TWO)) as sdk:
            asked = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS}
            whole = await sdk.chat.completions.create(**asked)
            async with sdk.chat.completions.stream(**asked) as stream:
                kinds = [event.type async for event in stream]
                final = await stream.get_final_completion()
        assert kinds.count("tool_calls.function.arguments.done") == 2
        assert "tool_calls.function.arguments.delta" in kinds
        for answer in (whole, final):
            (choice,) = answer.choices
            assert choice.finish_reason == "tool_calls" and choice.message.content == "Sure."
            called = [(c.function.name, c.function.arguments) for c in choice.message.tool_calls]
            assert called == [WEATHER, ADD]

    run(scenario())
