"""More than can be served: refused at once, or accepted and answered: in time, or with the reason why not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from served import octavo_serve
from serving import run, serving

from octavo_gateway.api.merge import merged
from octavo_gateway.protocol.errors import ApiError, deadline_exceeded


def slow(first: float = 0.0, step: float = 0.0, **kwargs: Any) -> ScriptedEngine:
    return ScriptedEngine(Script(spoken("fine"), first_step_seconds=first, step_seconds=step), **kwargs)


def chat(tokens: int) -> dict[str, Any]:
    """A conversation of so many tokens for the scripted tokenizer."""
    return {"messages": [{"role": "user", "content": "x" * (tokens - len("<user><assistant>"))}]}


def test_a_queue_full_of_tokens_answers_429() -> None:
    async def scenario() -> None:
        engine = slow(max_num_seqs=1)
        # The first keeps its place until all have come.
        engine.script = lambda _: Script(spoken("fine"), first_step_seconds=0.0 if engine.submitted else 0.5)
        async with serving(engine, api={"max_queue_tokens": 150}) as client:
            accepted = [asyncio.ensure_future(client.chat(**chat(100)))]
            await asyncio.sleep(0.1)
            status, headers, body = await client.chat(**chat(51))
            assert status == 429 and int(headers["Retry-After"]) >= 1
            assert (
                body["error"]["code"] == "rate_limit_exceeded"
                and "150 prompt tokens" in body["error"]["message"]
            )
            accepted.append(asyncio.ensure_future(client.chat(**chat(50))))
            assert [status for status, _, _ in await asyncio.gather(*accepted)] == [200, 200]
            # Beside an empty queue nothing is too large.
            assert (await client.chat(**chat(200)))[0] == 200
            prompts = ["y" * 100] * 3
            assert (await client.post("/v1/completions", {"prompt": prompts}))[0] == 200
            assert client.state.service().context.waiting.tokens == 0

    run(scenario())


@pytest.mark.parametrize("stream", [pytest.param(False, marks=pytest.mark.slow), True])
def test_what_has_no_token_in_time_is_ended_with_the_reason(stream: bool) -> None:
    """Queued behind another or being computed: its places are free at once, and the one that runs goes on."""

    async def scenario() -> None:
        engine = slow(first=0.6, max_num_seqs=1)
        async with serving(engine) as client:
            first = asyncio.ensure_future(client.chat())
            await asyncio.sleep(0.05)
            start = time.monotonic()
            status, _, body = await client.chat(timeout=0.2, stream=stream)
            assert 0.15 < time.monotonic() - start < 0.5
            if stream:
                assert status == 200 and body.endswith("data: [DONE]\n\n") and '"deadline_exceeded"' in body
            else:
                assert status == 504 and body["error"]["code"] == "deadline_exceeded"
                assert set(body["error"]) == {"message", "type", "param", "code"}
            assert engine.submitted[1].cancelled and not engine.submitted[0].cancelled
            assert (await first)[0] == 200
            assert engine.waiting == engine.running == client.state.accepted == 0
            assert client.state.service().context.waiting.tokens == 0

    run(scenario())


@pytest.mark.slow
def test_a_late_answer_ends_with_what_there_is() -> None:
    async def scenario() -> None:
        async with serving(slow(step=0.1), api={"request_seconds": 0.25}) as client:
            for asked in ({}, {"timeout": 100}):
                _, _, body = await client.chat(**asked)
                choice = body["choices"][0]
                assert choice["finish_reason"] == "abort" and "fine".startswith(choice["message"]["content"])
                assert choice["message"]["content"]
            chunks = await client.chunks()
            finishes = [c["choices"][0]["finish_reason"] for c in chunks]
            assert finishes[-1] == "abort" and set(finishes[:-1]) == {None}

    run(scenario())


@pytest.mark.slow
def test_the_first_token_has_a_limit_of_its_own() -> None:
    async def scenario() -> None:
        limits = {"first_token_seconds": 0.2, "request_seconds": 10.0}
        async with serving(slow(step=0.1), api=limits) as client:
            assert (await client.chat())[2]["choices"][0]["finish_reason"] == "stop"
        async with serving(slow(first=1.0), api=limits) as client:
            assert (await client.chat(n=3))[0] == 504
            assert (await client.post("/v1/completions", {"prompt": ["a", "b"]}))[0] == 504
            assert client.state.metrics.finished["abort"] == 3

    run(scenario())


def test_a_request_that_is_late_before_it_is_queued() -> None:
    async def scenario() -> None:
        engine = slow()
        encode = engine.tokenizer.encode_chat

        def dawdling(*args: Any, **kwargs: Any) -> list[int]:
            time.sleep(0.3)
            return encode(*args, **kwargs)

        engine.tokenizer.encode_chat = dawdling  # type: ignore[method-assign]
        async with serving(engine) as client:
            assert (await client.chat(timeout=0.1))[0] == 504
            assert engine.submitted == []

    run(scenario())


def test_an_error_while_the_reader_is_busy_is_not_lost() -> None:
    class Batches:
        def __init__(self, fails: bool) -> None:
            self._fails = fails

        async def batches(self) -> AsyncIterator[list[Any]]:
            if self._fails:
                await asyncio.sleep(0.01)
                raise deadline_exceeded(0.01)
            yield []

    async def scenario() -> None:
        with pytest.raises(ApiError, match="no token after"):
            async for _ in merged([Batches(False), Batches(True)]):  # type: ignore[list-item]
                await asyncio.sleep(0.1)

    run(scenario())


@pytest.mark.slow
def test_deadlines_of_the_engine_free_its_blocks() -> None:
    with octavo_serve("--max-model-len", "2048", "--threads", "1", "--max-num-seqs", "2") as served:
        assert served.complete(prompt=[7] * 1500, timeout=0.05)[0] == 504
        status, body = served.complete(max_tokens=2000, ignore_eos=True, timeout=1.0)
        assert status == 200 and body["choices"][0]["finish_reason"] == "abort"
        assert 0 < body["usage"]["completion_tokens"] < 2000
        assert served.settles()


@pytest.mark.slow
@pytest.mark.parametrize("large", [False, True])
def test_a_deadline_is_kept_while_the_prompt_is_tokenized(large: bool) -> None:
    """Of work that nobody waits for any more, nothing begins."""

    async def scenario() -> None:
        engine, begun = slow(), []

        def dawdling(text: str, *, add_special_tokens: bool) -> list[int]:
            begun.append(text)
            time.sleep(0.8)
            return [1]

        engine.tokenizer.encode = dawdling  # type: ignore[method-assign]
        prompt = "x" * (300_000 if large else 10)
        async with serving(engine, api={"length_shortcut": False}) as client:
            asked = {"prompt": prompt, "truncate_prompt_tokens": 5}
            start = time.monotonic()
            answers = await asyncio.gather(
                *(client.post("/v1/completions", {**asked, "timeout": 0.2}) for _ in range(6))
            )
            assert [status for status, _, _ in answers] == [504] * 6
            assert time.monotonic() - start < 0.6
            gone = [asyncio.ensure_future(client.post("/v1/completions", asked)) for _ in range(6)]
            await asyncio.sleep(0.1)
            for request in gone:
                request.cancel()
            await asyncio.sleep(1.2)
            assert len(begun) <= (2 if large else 4)
            assert client.state.accepted == 0 and engine.submitted == []
            assert (await client.post("/v1/completions", asked))[0] == 200

    run(scenario())


def test_text_without_the_engine_has_the_servers_deadline() -> None:
    async def scenario() -> None:
        engine = slow()

        def dawdling(*args: Any, **kwargs: Any) -> Any:
            time.sleep(0.8)
            return [1]

        engine.tokenizer.encode = engine.tokenizer.decode = dawdling  # type: ignore[method-assign]
        async with serving(engine, api={"request_seconds": 0.2}) as client:
            for path, body in (("/tokenize", {"prompt": "x"}), ("/detokenize", {"tokens": [1]})):
                start = time.monotonic()
                status, _, answer = await client.post(path, body)
                assert status == 504 and answer["error"]["code"] == "deadline_exceeded"
                assert time.monotonic() - start < 0.6
            assert client.state.accepted == 0

    run(scenario())
