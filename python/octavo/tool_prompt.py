"""Tools for models whose chat template knows none: described in the prompt, calls and results as text."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from octavo import checks
from octavo.chat_content import content_texts

if TYPE_CHECKING:
    from octavo.chat import ChatTemplate

_INTRODUCTION = (
    "You have functions that you can call. Each line between the tags describes one, its parameters as a JSON "
    "schema:\n<tools>\n{tools}\n</tools>\nTo call one, answer with its name and a JSON object of arguments, "
    "in this form:\n{example}\nWhat it returns is then given to you between <tool_response> tags. Answer without a "
    "call where none helps."
)


@dataclass(frozen=True)
class CallForm:
    """How a call is written: `before` NAME `between` ARGUMENTS `after`; arguments are JSON."""

    before: str
    between: str
    after: str
    json_name: bool = True  # the name is JSON, too

    def name(self, name: str) -> str:
        return json.dumps(name, ensure_ascii=False) if self.json_name else name

    def write(self, name: str, arguments: str) -> str:
        return f"{self.before}{name}{self.between}{arguments}{self.after}"


HERMES = CallForm('<tool_call>\n{"name": ', ', "arguments": ', "}\n</tool_call>")


def fitted(
    template: ChatTemplate,
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    form: CallForm = HERMES,
) -> tuple[Sequence[Mapping[str, Any]], Sequence[Mapping[str, Any]]]:
    """Messages and tools for ``template``: what it does not know of tools is in the messages as text."""
    used = any(
        isinstance(message, Mapping) and (message.get("role") == "tool" or message.get("tool_calls"))
        for message in messages
    )
    if (tools or used) and not template.takes_tools:
        return with_tools_in_text(messages, tools, form, has_system=template.takes_system), ()
    if used and not template.writes_calls:
        return with_tools_in_text(messages, (), form), tools
    return messages, tools


def with_tools_in_text(
    messages: Sequence[Mapping[str, Any]],
    tools: Sequence[Mapping[str, Any]],
    form: CallForm = HERMES,
    *,
    has_system: bool = True,
) -> list[dict[str, Any]]:
    """The conversation with nothing in it but texts of system, user and assistant.

    Args:
        messages: chat messages; calls and results of tools may be among them.
        tools: what can be called now, as OpenAI describes it; may be empty.
        form: how the model is to write a call.
        has_system: the template takes a system message; otherwise the first message of the user gets the text.
    """
    out: list[dict[str, Any]] = []
    results: list[str] = []
    for i, message in enumerate(messages):
        where = f"messages[{i}].content"
        if message.get("role") == "tool":
            results.append(f"<tool_response>\n{_text(message.get('content'), where)}\n</tool_response>")
            continue
        _add_results(out, results)
        plain = {k: v for k, v in message.items() if k not in ("tool_calls", "tool_call_id")}
        calls = message.get("tool_calls") or []
        if not isinstance(calls, (list, tuple)) or not all(isinstance(call, Mapping) for call in calls):
            raise checks.invalid(f"messages[{i}].tool_calls", calls, "a list of tool calls")
        if calls:
            texts = [_text(message.get("content"), where), *(_written(call, form) for call in calls)]
            plain["content"] = "\n".join(text for text in texts if text)
        out.append(plain)
    _add_results(out, results)
    return _introduced(out, tools, form, has_system) if tools else out


def _introduced(
    messages: list[dict[str, Any]], tools: Sequence[Mapping[str, Any]], form: CallForm, has_system: bool
) -> list[dict[str, Any]]:
    text = _INTRODUCTION.format(
        tools="\n".join(json.dumps(tool, ensure_ascii=False) for tool in tools),
        example=form.write("<name>", "<arguments>"),
    )
    roles = ("system", "developer") if has_system else ("user",)
    at = next((i for i, message in enumerate(messages) if message.get("role") in roles), None)
    if at is None:
        return [{"role": roles[0], "content": text}, *messages]
    texts = [_text(messages[at].get("content")), text]
    said = "\n\n".join(t for t in (texts if has_system else texts[::-1]) if t)
    return [*messages[:at], {**messages[at], "content": said}, *messages[at + 1 :]]


def _add_results(messages: list[dict[str, Any]], results: list[str]) -> None:
    if results:
        messages.append({"role": "user", "content": "\n".join(results)})
        results.clear()


def _written(call: Mapping[str, Any], form: CallForm) -> str:
    function = call.get("function") or {}
    arguments = function.get("arguments") or {}
    if not isinstance(arguments, str):
        arguments = json.dumps(arguments, ensure_ascii=False)
    return form.write(form.name(function.get("name", "")), arguments)


def _text(content: Any, where: str = "content") -> str:
    return content if isinstance(content, str) else "\n".join(content_texts(content or [], where))
