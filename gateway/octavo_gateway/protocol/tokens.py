"""The shapes of POST /tokenize and /detokenize."""

from __future__ import annotations

from typing import Any

import msgspec

from octavo_gateway.protocol import fields
from octavo_gateway.protocol.chat import ChatMessage
from octavo_gateway.protocol.tools import Tool


class TokenizeRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    prompt: str | None = None
    messages: list[ChatMessage] | None = None
    add_special_tokens: bool | None = None
    add_generation_prompt: bool | None = None
    continue_final_message: bool | None = None
    chat_template_kwargs: dict[str, Any] | None = None
    tools: list[Tool] | None = None
    reasoning_effort: fields.ReasoningEffort | None = None
    return_token_strs: bool | None = None


class SharedPromptFile(msgspec.Struct, kw_only=True):
    """Prompts that an operator declares common to all tenants."""

    prompts: list[TokenizeRequest]


class Tokenized(msgspec.Struct, kw_only=True):
    count: int
    max_model_len: int
    tokens: list[int]
    token_strs: list[str] | None


class DetokenizeRequest(msgspec.Struct, kw_only=True):
    model: str | None = None
    tokens: list[int]


class Detokenized(msgspec.Struct):
    prompt: str
