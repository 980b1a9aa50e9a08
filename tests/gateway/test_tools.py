"""Tool calls and thoughts over HTTP: whole and streamed alike, in the shapes that clients read."""

from __future__ import annotations

import json
from typing import Any

import pytest
from serving import Client, run, serving
from transcripts import ADD, THOUGHT, TOOLS, TRANSCRIPTS, TWO, WEATHER, message_of, saying


def calls_of(message: dict[str, Any]) -> list[tuple[str, str]]:
    return [(c["function"]["name"], c["function"]["arguments"]) for c in message.get("tool_calls") or ()]


async def both(client: Client, **fields: Any) -> tuple[dict[str, Any], dict[str, Any]]:
    """A request answered as a whole (its body) and streamed (the message)."""
    status, _, body = await client.chat(**fields)
    assert status == 200, body
    return body, message_of(await client.chunks(**fields))


def test_calls_have_the_official_shape_whole_and_streamed() -> None:
    """Behaviours 71 and 72."""

    async def scenario() -> None:
        async with serving(saying(TWO)) as client:
            body, streamed = await both(client, tools=TOOLS, stream_options={"include_usage": True})
        (choice,) = body["choices"]
        assert choice["finish_reason"] == streamed["finish_reason"] == "tool_calls"
        assert choice["message"]["content"] == streamed["content"] == "Sure."
        assert calls_of(choice["message"]) == calls_of(streamed) == [WEATHER, ADD]
        ids = [c["id"] for m in (choice["message"], streamed) for c in m["tool_calls"]]
        assert len(set(ids)) == 4 and all(id.startswith("call") for id in ids)
        assert "reasoning" not in choice["message"] and "completion_tokens_details" not in body["usage"]

    run(scenario())


def test_calls_do_not_depend_on_how_steps_cut_the_text() -> None:
    """Behaviour 73: every two-way split, as the server streams it."""

    async def scenario() -> None:
        for cut in range(1, len(TWO), 3):
            async with serving(saying(TWO, cut=cut)) as client:
                streamed = message_of(await client.chunks(tools=TOOLS))
            assert calls_of(streamed) == [WEATHER, ADD] and streamed["content"] == "Sure."

    run(scenario())


def test_an_answer_without_words_has_null_content() -> None:
    async def scenario() -> None:
        async with serving(saying(TRANSCRIPTS["hermes"].text)) as client:
            body, streamed = await both(client, tools=TOOLS)
        assert body["choices"][0]["message"]["content"] is None and streamed["content"] == ""

    run(scenario())


@pytest.mark.parametrize("fields", [{}, {"tools": []}, {"tools": TOOLS, "tool_choice": "none"}])
def test_without_tools_to_call_everything_is_text(fields: dict[str, Any]) -> None:
    async def scenario() -> None:
        engine = saying(TWO)
        async with serving(engine) as client:
            body, streamed = await both(client, **fields)
        assert body["choices"][0]["message"]["content"] == streamed["content"] == TWO
        assert streamed["finish_reason"] == "stop" and b"<tools>" not in bytes(engine.submitted[0].prompt)

    run(scenario())


def test_a_call_that_is_cut_ends_by_length() -> None:
    async def scenario() -> None:
        async with serving(saying(TWO)) as client:
            body, streamed = await both(client, tools=TOOLS, max_tokens=70)
        assert body["choices"][0]["finish_reason"] == streamed["finish_reason"] == "length"
        ((name, arguments),) = calls_of(streamed)
        assert (name, arguments) == calls_of(body["choices"][0]["message"])[0]
        assert WEATHER[1].startswith(arguments) and arguments != WEATHER[1]

    run(scenario())


def test_several_choices_are_read_apart() -> None:
    async def scenario() -> None:
        async with serving(saying(TWO)) as client:
            chunks = await client.chunks(tools=TOOLS, n=2)
        for index in (0, 1):
            assert calls_of(message_of(chunks, index)) == [WEATHER, ADD]

    run(scenario())


def test_thoughts_are_kept_apart() -> None:
    async def scenario() -> None:
        async with serving(saying(THOUGHT, "<think><tool_call>")) as client:
            fields = {"tools": TOOLS, "reasoning_effort": "high"}
            body, streamed = await both(client, **fields)
            hidden, hidden_stream = await both(client, **fields, include_reasoning=False)
            *_, last = await client.chunks(**fields, stream_options={"include_usage": True})
        message = body["choices"][0]["message"]
        want = TRANSCRIPTS["think"].found
        assert message["reasoning"] == message["reasoning_content"] == streamed["reasoning"] == want.reasoning
        assert message["content"] == streamed["content"] == want.content
        assert calls_of(message) == calls_of(streamed) == want.calls
        assert "reasoning" not in hidden["choices"][0]["message"] and hidden_stream["reasoning"] == ""
        assert hidden["usage"] == body["usage"] == last["usage"]
        tokens = body["usage"]["completion_tokens_details"]["reasoning_tokens"]
        assert 0 < len(want.reasoning) <= tokens < body["usage"]["completion_tokens"]

    run(scenario())


def test_a_thought_that_the_prompt_opened() -> None:
    async def scenario() -> None:
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>\n"}]
        async with serving(saying("Hm.</think>\n\nYes.", "<think>")) as client:
            body, streamed = await both(client, messages=said, continue_final_message=True)
        message = body["choices"][0]["message"]
        # The scripted template puts nothing behind the last message here.
        assert (message["reasoning"], message["content"]) == ("Hm.", "Yes.")
        assert (streamed["reasoning"], streamed["content"]) == ("Hm.", "Yes.")

    run(scenario())


def test_logprobs_and_ids_cover_calls_and_thoughts() -> None:
    async def scenario() -> None:
        async with serving(saying(THOUGHT, "<think><tool_call>")) as client:
            fields = {"tools": TOOLS, "logprobs": True, "return_token_ids": True}
            _, _, body = await client.chat(**fields)
            chunks = await client.chunks(**fields)
        choice = body["choices"][0]
        assert len(choice["token_ids"]) == len(choice["logprobs"]["content"]) == len(THOUGHT.encode())
        parts = [c["choices"][0] for c in chunks]
        assert [t for p in parts for t in p.get("token_ids", ())] == choice["token_ids"]
        told = [e for p in parts if p["logprobs"] for e in p["logprobs"]["content"]]
        assert told == choice["logprobs"]["content"]

    run(scenario())


@pytest.mark.parametrize(
    ("template", "opened", "pauses", "paused"),
    [
        ("<tool_call>", False, [("<tool_call>", "</tool_call>")], False),
        ("<think><tool_call>", False, [("<think>", "</think>"), ("<tool_call>", "</tool_call>")], False),
        ("<think><tool_call>", True, [("<think>", "</think>"), ("<tool_call>", "</tool_call>")], True),
        ("<|channel|>", False, [("<|start|>", "<|channel|>final")], True),
    ],
)
def test_stops_are_for_the_text_of_the_answer(
    template: str, opened: bool, pauses: list[tuple[str, str]], paused: bool
) -> None:
    """Behaviour 41: neither thoughts nor calls are looked through for stop strings."""

    async def scenario() -> None:
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>"}]
        fields = {"messages": said, "continue_final_message": True} if opened else {}
        engine = saying("x", template)
        async with serving(engine) as client:
            await client.chat(tools=TOOLS, stop="9.8", **fields)
            await client.chat(tools=TOOLS, **fields)
        params = [stream.params for stream in engine.submitted]
        assert [p.stop_pauses for p in params] == [pauses, None]
        assert [p.stop_paused for p in params] == [paused, False]

    run(scenario())


def test_control_tokens_are_shown_to_formats_that_are_made_of_them() -> None:
    async def scenario() -> None:
        text = TRANSCRIPTS["mistral named"].text
        engine = saying(text, "[TOOL_CALLS]")
        async with serving(engine) as client:
            body, _ = await both(client, tools=TOOLS)
            await client.chat()
        calls = body["choices"][0]["message"]["tool_calls"]
        assert len(calls) == 3 and all(len(c["id"]) == 9 and c["id"].isalnum() for c in calls)
        assert [s.params.skip_special_tokens for s in engine.submitted] == [False, False, True]

    run(scenario())


def test_the_flags_choose_the_format() -> None:
    async def scenario() -> None:
        text = TRANSCRIPTS["mistral"].text
        settings = {"tool_parser": "mistral", "reasoning_parser": "none"}
        async with serving(saying("<think>" + text, "<tool_call><think>"), api=settings) as client:
            body, _ = await both(client, tools=TOOLS)
        assert body["choices"][0]["message"]["content"] == "<think>"
        assert len(calls_of(body["choices"][0]["message"])) == 2

    run(scenario())


def _function(**fields: Any) -> dict[str, Any]:
    return {"type": "function", "function": fields}


@pytest.mark.parametrize(
    ("fields", "param"),
    [
        ({"tools": [_function(name="a b")]}, "tools[0].function.name"),
        ({"tools": [*TOOLS, _function(name="add")]}, "tools[3].function.name"),
        ({"tools": [_function()]}, "tools[0].function.name"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type"),
        ({"tools": [_function(name="a")] * 1025}, "tools"),
        ({"tools": [_function(name="a", parameters=[])]}, "tools[0].function.parameters"),
        ({"tool_choice": "required"}, "tool_choice"),
        ({"tool_choice": "some"}, "tool_choice"),
        ({"tools": TOOLS, "tool_choice": _function(name="sub")}, "tool_choice"),
        ({"tool_choice": _function(name="add")}, "tool_choice"),
        (
            {
                "tools": TOOLS,
                "tool_choice": {"type": "allowed_tools", "allowed_tools": {"mode": "auto", "tools": []}},
            },
            "tool_choice",
        ),
        ({"reasoning_effort": "very"}, "reasoning_effort"),
        ({"reasoning_effort": "high"}, "reasoning_effort"),
    ],
)
def test_refusals(fields: dict[str, Any], param: str) -> None:
    async def scenario() -> None:
        async with serving(saying("x")) as client:
            status, _, body = await client.chat(**fields)
        assert status == 400, body
        assert body["error"]["param"] == param and len(json.dumps(body)) < 1024

    run(scenario())


def test_the_form_of_an_answer_begins_behind_the_thought() -> None:
    async def scenario() -> None:
        schema = {"type": "json_schema", "json_schema": {"name": "n", "schema": {"type": "integer"}}}
        said = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "<think>"}]
        opened = {"messages": said, "continue_final_message": True}
        engine = saying("x", "<think><tool_call>")
        async with serving(engine) as client:
            await client.chat(response_format=schema)
            await client.chat(response_format=schema, **opened)
            await client.chat(tools=TOOLS, tool_choice="required", stop=["a"], **opened)
            await client.chat(tools=TOOLS, **opened)
        free, behind, calls, auto = (stream.params for stream in engine.submitted)
        assert free.grammar.spec.start_after == "" and "<think>" in free.grammar.spec.text
        assert behind.grammar.spec.start_after == calls.grammar.spec.start_after == "</think>"
        assert "get_weather" in calls.grammar.spec.text and not calls.stop
        assert auto.grammar is None

    run(scenario())
