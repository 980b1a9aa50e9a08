"""Tools with the default model: what must be a call is one, and its arguments fit their schema."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from served import Served
from transcripts import message_of

PARAMETERS = {
    "get_weather": {
        "type": "object",
        "properties": {
            "city": {"type": "string", "maxLength": 12},
            "unit": {"enum": ["celsius", "fahrenheit"]},
            "days": {"type": "array", "items": {"$ref": "#/$defs/day"}, "maxItems": 2},
        },
        "required": ["city", "unit"],
        "additionalProperties": False,
        "$defs": {"day": {"type": "integer", "minimum": 1, "maximum": 7}},
    },
    "convert": {
        "type": "object",
        "properties": {"celsius": {"type": "integer", "minimum": -60, "maximum": 60}},
        "required": ["celsius"],
        "additionalProperties": False,
    },
}
TOOLS = [
    {"type": "function", "function": {"name": name, "description": f"Calls {name}.", "parameters": schema}}
    for name, schema in PARAMETERS.items()
]
ASK = {
    "messages": [{"role": "user", "content": "What is the weather in Paris?"}],
    "tools": TOOLS,
    "max_tokens": 200,
}


def checked_calls(message: dict[str, Any]) -> list[str]:
    """The names of the calls, each with arguments that an independent validator accepts."""
    for call in message["tool_calls"]:
        jsonschema.validate(json.loads(call["function"]["arguments"]), PARAMETERS[call["function"]["name"]])
    return [call["function"]["name"] for call in message["tool_calls"]]


def named(name: str) -> dict[str, Any]:
    return {"type": "function", "function": {"name": name}}


@pytest.mark.slow
def test_required_calls_fit_their_schemas(served: Served) -> None:
    fields = {**ASK, "tool_choice": "required", "parallel_tool_calls": False, "temperature": 1, "top_p": 1}
    _, body = served.chat(**fields, n=8, seed=3)
    for choice in body["choices"]:
        assert choice["finish_reason"] == "tool_calls" and choice["message"]["content"] is None, choice
        assert len(checked_calls(choice["message"])) == 1
    streamed = message_of(served.stream(**fields, n=8, seed=3), 5)
    whole = body["choices"][5]["message"]["tool_calls"]
    assert [c["function"] for c in streamed["tool_calls"]] == [c["function"] for c in whole]


@pytest.mark.parametrize("choice", [named("convert"), named("get_weather")])
def test_a_named_function_is_the_one_that_is_called(served: Served, choice: dict[str, Any]) -> None:
    _, body = served.chat(**ASK, tool_choice=choice, stop=["}", '"'])
    (one,) = body["choices"]
    assert checked_calls(one["message"]) == [choice["function"]["name"]], one
    assert one["finish_reason"] == "tool_calls"


def test_allowed_tools_are_the_ones_that_are_called(served: Served) -> None:
    allowed = {"mode": "required", "tools": [named("convert")]}
    choice = {"type": "allowed_tools", "allowed_tools": allowed}
    _, body = served.chat(**ASK, tool_choice=choice, parallel_tool_calls=False, temperature=1, seed=1)
    assert checked_calls(body["choices"][0]["message"]) == ["convert"]


def test_a_cut_call_ends_by_length(served: Served) -> None:
    _, body = served.chat(**{**ASK, "max_tokens": 20}, tool_choice=named("get_weather"))
    (one,) = body["choices"]
    assert one["finish_reason"] == "length" and one["message"]["tool_calls"][0]["function"]["name"]


def test_a_schema_that_cannot_be_honoured_is_refused(served: Served) -> None:
    for parameters in (
        {"type": "object", "properties": {"a": {"type": "string", "format": "made-up"}}},
        {"$ref": "#/$defs/a", "$defs": {"a": {"$ref": "#/$defs/a"}}},
        {"type": "array"},
    ):
        tool = {"type": "function", "function": {"name": "f", "parameters": parameters}}
        status, body = served.chat(**{**ASK, "tools": [tool]}, tool_choice="required")
        assert status == 400 and body["error"]["param"] == "tools", body
        status, body = served.chat(**{**ASK, "tools": [tool], "max_tokens": 1})
        assert status == 200, body


def rendered(served: Served, **fields: Any) -> str:
    status, tokens = served.request("POST", "/tokenize", fields)
    assert status == 200, tokens
    return str(served.request("POST", "/detokenize", {"tokens": tokens["tokens"]})[1]["prompt"])


def test_a_history_of_calls_is_rendered_without_none(served: Served) -> None:
    """Behaviour 75."""
    call = {"id": "c1", "type": "function", "function": {"name": "convert", "arguments": '{"celsius": 21}'}}
    history = [
        {"role": "user", "content": "21 °C in Fahrenheit?"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "c1", "content": "69.8"},
        {"role": "assistant", "content": None, "tool_calls": []},
        {"role": "user", "content": "Sure?"},
    ]
    text = rendered(served, messages=history, tools=TOOLS)
    assert "None" not in text and "null" not in text
    assert '<tool_call>\n{"name": "convert", "arguments": {"celsius": 21}}\n</tool_call>' in text
    assert "<tool_response>\n69.8\n</tool_response>" in text
    assert '"name": "get_weather"' in text and text.index("<tools>") < text.index("21 °C")
    assert "<tools>" not in rendered(served, messages=history)


@pytest.mark.slow
def test_a_loop_over_two_tools_with_the_official_client(served: Served) -> None:
    client = served.client
    tools = {
        "get_weather": lambda **_: "It is 21 degrees Celsius.",
        "convert": lambda celsius: celsius * 9 / 5 + 32,
    }
    messages: list[Any] = [{"role": "user", "content": "How warm is Paris in Fahrenheit?"}]
    asked = {"model": served.model, "tools": TOOLS, "max_tokens": 120, "temperature": 0}
    for name in tools:
        answer = client.chat.completions.create(
            **asked,
            messages=messages,
            tool_choice=named(name) if name == "convert" else "required",
            parallel_tool_calls=False,
        )
        message = answer.choices[0].message
        assert answer.choices[0].finish_reason == "tool_calls"
        messages.append(message.model_dump(exclude_none=True))
        for call in message.tool_calls:
            arguments = json.loads(call.function.arguments)
            jsonschema.validate(arguments, PARAMETERS[call.function.name])
            result = str(tools[call.function.name](**arguments))
            messages.append({"role": "tool", "tool_call_id": call.id, "content": result})
    with client.chat.completions.stream(**asked, messages=messages, tool_choice="none") as stream:
        final = stream.get_final_completion()
    assert final.choices[0].message.content and not final.choices[0].message.tool_calls
