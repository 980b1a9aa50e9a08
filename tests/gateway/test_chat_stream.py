"""The two forms of a chat completion, and that they say the same."""

from __future__ import annotations

import json

import pytest
from scripted import ByteTokenizer, Delta, Script, ScriptedEngine, spoken
from serving import HELLO, MODEL, run, serving

TEXT = 'Grüße, 世界 🌍!\nA "quoted" line\\ and \u2028 a separator.'


def talking(text: str = TEXT, **script: object) -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken(text), **script))  # type: ignore[arg-type]


def contents(chunks: list[dict]) -> list[str]:
    return [
        c["choices"][0]["delta"]["content"]
        for c in chunks
        if c["choices"] and c["choices"][0]["delta"].get("content")
    ]


def test_the_concatenated_stream_is_the_whole_text() -> None:
    async def scenario() -> None:
        async with serving(talking()) as client:
            status, _, whole = await client.chat()
            chunks = await client.chunks()
        assert status == 200
        assert whole["choices"][0]["message"]["content"] == TEXT
        assert "".join(contents(chunks)) == TEXT

    run(scenario())


def test_role_first_no_empty_deltas_one_finish() -> None:
    async def scenario() -> None:
        steps = [([65], "A"), ([66], ""), ([67], "C")]  # the second token's text is held back
        async with serving(ScriptedEngine(Script(steps=steps, stop_reason="X"))) as client:
            chunks = await client.chunks()
        choices = [c["choices"][0] for c in chunks]
        assert choices[0]["delta"] == {"role": "assistant", "content": ""}
        assert [c["delta"] for c in choices[1:-1]] and all(c["delta"]["content"] for c in choices[1:-1])
        assert [c["finish_reason"] for c in choices] == [None] * (len(choices) - 1) + ["stop"]
        assert choices[-1]["delta"] == {} and choices[-1]["stop_reason"] == "X"
        assert len({c["id"] for c in chunks}) == 1 and chunks[0]["id"].startswith("chatcmpl-")
        assert all(c["object"] == "chat.completion.chunk" and c["model"] == MODEL for c in chunks)

    run(scenario())


@pytest.mark.parametrize(
    ("options", "expected"),
    [({}, False), ({"include_usage": False}, False), ({"include_usage": True}, True), (None, False)],
)
def test_usage_only_where_asked_for(options: dict | None, expected: bool) -> None:
    """Behaviour 45."""

    async def scenario() -> None:
        async with serving(talking("abc", cached_tokens=16)) as client:
            chunks = await client.chunks(stream_options=options)
        with_usage = [c for c in chunks if "usage" in c]
        assert bool(with_usage) == expected
        if expected:
            assert with_usage == [chunks[-1]]
            assert chunks[-1]["choices"] == []
            usage = chunks[-1]["usage"]
            assert usage["completion_tokens"] == 3
            assert usage["total_tokens"] == usage["prompt_tokens"] + 3
            assert usage["prompt_tokens_details"] == {"cached_tokens": 16}

    run(scenario())


@pytest.mark.parametrize("route", ["chat", "completions"])
def test_running_usage_in_every_chunk(route: str) -> None:
    async def scenario() -> None:
        body = HELLO if route == "chat" else {"prompt": "Hi"}
        path = "/v1/chat/completions" if route == "chat" else "/v1/completions"
        options = {"include_usage": True, "continuous_usage_stats": True}
        async with serving(talking("abc", cached_tokens=16, step_seconds=0.02)) as client:
            _, _, text = await client.post(path, {**body, "stream": True, "stream_options": options})
            chunks = [json.loads(e.removeprefix("data: ")) for e in text.split("\n\n")[:-2]]
            told = [c["usage"]["completion_tokens"] for c in chunks]
            assert told == sorted(told) and told[-1] == 3 and len(set(told)) == 3
            assert {c["usage"]["prompt_tokens_details"]["cached_tokens"] for c in chunks} == {16}
            quiet = {"continuous_usage_stats": True}
            _, _, text = await client.post(path, {**body, "stream": True, "stream_options": quiet})
            assert "usage" not in text

    run(scenario())


def test_cached_tokens_is_always_an_integer() -> None:
    """Behaviour 100."""

    async def scenario() -> None:
        async with serving(talking("abc")) as client:
            _, _, whole = await client.chat()
        assert whole["usage"]["prompt_tokens_details"]["cached_tokens"] == 0

    run(scenario())


def test_the_answer_has_the_keys_of_the_schema_and_no_stray_nulls() -> None:
    async def scenario() -> None:
        async with serving(talking("abc")) as client:
            _, _, whole = await client.chat()
        assert set(whole) == {"id", "object", "created", "model", "choices", "usage", "system_fingerprint"}
        assert set(whole["choices"][0]) == {"index", "message", "logprobs", "finish_reason"}
        assert whole["choices"][0]["message"] == {"role": "assistant", "content": "abc", "refusal": None}

    run(scenario())


def test_streamed_logprobs_equal_the_whole_ones_with_true_bytes() -> None:
    """Behaviours 47 and 49: also for tokens that are part of a character."""

    async def scenario() -> None:
        asked = {"logprobs": True, "top_logprobs": 2}
        async with serving(talking()) as client:
            _, _, whole = await client.chat(**asked)
            chunks = await client.chunks(**asked)
        entries = whole["choices"][0]["logprobs"]["content"]
        streamed = [e for c in chunks for e in (c["choices"][0]["logprobs"] or {"content": []})["content"]]
        assert streamed == entries
        assert bytes(b for e in entries for b in e["bytes"]).decode() == TEXT
        assert next(e for e in entries if e["bytes"] == [0xF0])["token"] == "bytes:\\xf0"
        assert all(e["top_logprobs"][1]["logprob"] == -9999.0 for e in entries)

    run(scenario())


def test_logprobs_of_tokens_without_text_come_with_the_finish() -> None:
    async def scenario() -> None:
        steps = [([65], "A"), ([66], "")]
        async with serving(ScriptedEngine(Script(steps=steps))) as client:
            chunks = await client.chunks(logprobs=True)
        last = chunks[-1]["choices"][0]
        assert last["finish_reason"] == "stop"
        assert [e["bytes"] for e in last["logprobs"]["content"]] == [[66]]

    run(scenario())


def test_what_waits_together_makes_one_chunk() -> None:
    from octavo_gateway.api.chat_chunks import ChatChunks
    from octavo_gateway.api.chat_form import ChatForm

    chunks = ChatChunks("chatcmpl-1", 0, MODEL, "fp", ChatForm(ByteTokenizer(), [1]))
    events = chunks.encode(
        [Delta(text="a"), Delta(text="b"), Delta(choice=1, text="c"), Delta(finish="stop")]
    )
    decoded = [json.loads(e.removeprefix("data: ")) for e in events.decode().split("\n\n") if e]
    told = [
        (c["choices"][0]["index"], c["choices"][0]["delta"], c["choices"][0]["finish_reason"])
        for c in decoded
    ]
    role = {"role": "assistant", "content": ""}
    assert told == [
        (0, role, None),
        (0, {"content": "ab"}, None),
        (0, {}, "stop"),
        (1, role, None),
        (1, {"content": "c"}, None),
    ]


def test_a_fault_after_the_headers_is_an_error_event_then_done() -> None:
    """Behaviour 97."""

    async def scenario() -> None:
        engine = talking("ab", error=("internal", "", "the step failed"))
        async with serving(engine) as client:
            lines = await client.lines()
            status, _, body = await client.chat()
        assert lines[-1] == "data: [DONE]"
        error = json.loads(lines[-2].removeprefix("data: "))["error"]
        assert set(error) == {"message", "type", "param", "code"} and "the step failed" in error["message"]
        assert not any('"finish_reason":"' in line for line in lines)
        told = [json.loads(line.removeprefix("data: ")) for line in lines[:-2]]
        assert "".join(contents(told)) == "ab"  # also when it waits together with the fault
        assert status == 500 and body["error"]["code"] == "internal_error"

    run(scenario())


def test_keep_alive_comments_before_the_first_token_and_between() -> None:
    """Behaviour 96."""

    async def scenario() -> None:
        engine = talking("ab", first_step_seconds=0.18, step_seconds=0.12)
        async with serving(engine, api={"keep_alive_seconds": 0.05}) as client:
            lines = await client.lines()
        first_data = next(i for i, line in enumerate(lines) if line.startswith("data:"))
        assert lines[:first_data].count(": keep-alive") >= 2
        assert ": keep-alive" in lines[first_data:]

    run(scenario())


def test_headers_of_a_stream() -> None:
    async def scenario() -> None:
        async with serving(talking("a")) as client:
            _, headers, _ = await client.post(
                "/v1/chat/completions", {**HELLO, "stream": True}, headers={"X-Request-Id": "mine"}
            )
        assert headers["Cache-Control"] == "no-cache"
        assert headers["X-Accel-Buffering"] == "no"
        assert headers["X-Request-Id"] == "mine"

    run(scenario())


def test_ids_are_ours_and_unique() -> None:
    async def scenario() -> None:
        async with serving(talking("a")) as client:
            answers = [
                await client.post("/v1/chat/completions", HELLO, headers={"X-Request-Id": "same"})
                for _ in range(5)
            ]
        assert len({body["id"] for _, _, body in answers}) == 5
        assert all("same" not in body["id"] for _, _, body in answers)
        assert all(headers["X-Request-Id"] == "same" for _, headers, _ in answers)

    run(scenario())
