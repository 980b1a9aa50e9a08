"""Chat messages as plain dictionaries. How a template wants them is octavo's ChatTemplate's business."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import msgspec

from octavo_gateway.protocol.chat import ChatMessage
from octavo_gateway.protocol.errors import invalid


def plain_messages(messages: Sequence[ChatMessage]) -> list[dict[str, Any]]:
    """The conversation without nulls. Only an assistant that called tools, or a tool, may have said nothing."""
    for i, message in enumerate(messages):
        if message.content is None and message.role not in ("assistant", "tool"):
            raise invalid(
                f"messages[{i}].content",
                f"messages[{i}].content is required in a {message.role} message.",
                code="missing_required_parameter",
            )
    return [_without_nulls(message) for message in messages]


def text_bytes(messages: Sequence[ChatMessage]) -> int:
    """How much text the template gets at least, in bytes of UTF-8."""
    return sum(len(text.encode()) for text in _texts(messages))


def text_length(messages: Sequence[ChatMessage]) -> int:
    """The same in characters, which costs nothing to tell."""
    return sum(map(len, _texts(messages)))


def _texts(messages: Sequence[ChatMessage]) -> Iterator[str]:
    for message in messages:
        parts = message.content
        if isinstance(parts, str):
            yield parts
        elif parts is not None:
            yield from (part.text for part in parts if part.text is not None)


def echoed_text(messages: Sequence[ChatMessage]) -> str:
    """What a request with `echo` gets before its answer: the last message, if the answer is by the same role."""
    last = messages[-1]
    if last.role != "assistant" or last.content is None:
        return ""
    if isinstance(last.content, str):
        return last.content
    return "\n".join(part.text for part in last.content if part.text is not None)


def _without_nulls(message: ChatMessage) -> dict[str, Any]:
    fields: dict[str, Any] = msgspec.to_builtins(message)
    if message.content is None and message.refusal:
        fields["content"] = message.refusal
    return {name: value for name, value in fields.items() if value is not None}
