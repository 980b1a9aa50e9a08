"""The shapes of POST /v1/completions."""

from __future__ import annotations

import msgspec

from octavo_gateway.protocol import fields
from octavo_gateway.protocol.common import GenerationFields, PromptLogprobs, Usage
from octavo_gateway.protocol.errors import unsupported


class CompletionRequest(GenerationFields, kw_only=True):
    prompt: fields.Prompt
    max_tokens: fields.MaxTokensOrZero | None = None
    logprobs: fields.Logprobs | None = None
    suffix: fields.NoSuffix | None = None
    prompt_embeds: fields.Nothing = None

    def check_supported(self) -> None:
        super().check_supported()
        if self.suffix:
            raise unsupported("suffix", "this model cannot fill in between a prompt and a suffix.")
        if self.prompt_embeds not in (None, []):
            raise unsupported("prompt_embeds", "this server does not support it.")


class LegacyLogprobs(msgspec.Struct, kw_only=True):
    """One entry per token in each list; null where nothing predicts the token."""

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


class CompletionChoice(msgspec.Struct, kw_only=True):
    index: int
    text: str
    logprobs: LegacyLogprobs | None
    finish_reason: str | None
    stop_reason: int | str | msgspec.UnsetType = msgspec.UNSET
    token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_token_ids: list[int] | msgspec.UnsetType = msgspec.UNSET
    prompt_logprobs: PromptLogprobs | msgspec.UnsetType = msgspec.UNSET


class Completion(msgspec.Struct, kw_only=True):
    """The whole answer, and a chunk of a streamed one."""

    id: str
    object: str = "text_completion"
    created: int
    model: str
    choices: list[CompletionChoice]
    usage: Usage | msgspec.UnsetType = msgspec.UNSET
    system_fingerprint: str
