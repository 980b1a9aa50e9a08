"""Fields that /v1/chat/completions and /v1/completions share, and the parts of their answers that are alike."""

from __future__ import annotations

import msgspec

from octavo_gateway.protocol import fields
from octavo_gateway.protocol.errors import unsupported
from octavo_gateway.protocol.structure import ResponseFormat, StructuredOutputs


class StreamOptions(msgspec.Struct, kw_only=True):
    include_usage: bool | None = None
    continuous_usage_stats: bool | None = None


class GenerationFields(msgspec.Struct, kw_only=True):
    """What both generating routes take. None: not given, the defaults decide."""

    model: str | None = None
    max_tokens: fields.MaxTokens | None = None
    n: fields.Choices | None = None
    seed: fields.Seed | None = None
    stop: fields.Stop | None = None
    temperature: fields.Temperature | None = None
    top_p: fields.TopP | None = None
    presence_penalty: fields.Penalty | None = None
    frequency_penalty: fields.Penalty | None = None
    logit_bias: fields.LogitBias | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    # vLLM's extras
    top_k: fields.TopK | None = None
    min_p: fields.MinP | None = None
    repetition_penalty: fields.RepetitionPenalty | None = None
    stop_token_ids: fields.StopTokenIds | None = None
    include_stop_str_in_output: bool | None = None
    ignore_eos: bool | None = None
    min_tokens: fields.MinTokens | None = None
    bad_words: fields.BadWords | None = None
    allowed_token_ids: fields.AllowedTokenIds | None = None
    skip_special_tokens: bool | None = None
    spaces_between_special_tokens: bool | None = None
    truncate_prompt_tokens: fields.TruncatePromptTokens | None = None
    add_special_tokens: bool | None = None
    priority: fields.Priority | None = None
    timeout: fields.Timeout | None = None
    cache_salt: fields.CacheSalt | None = None
    prompt_logprobs: fields.Logprobs | None = None
    return_token_ids: bool | None = None
    echo: bool | None = None
    best_of: fields.Choices | None = None
    response_format: ResponseFormat | None = None
    structured_outputs: StructuredOutputs | None = None
    # Known, and refused while nothing here serves it.
    use_beam_search: fields.NotYet | None = None

    @property
    def include_usage(self) -> bool:
        options = self.stream_options
        return bool(options is not None and options.include_usage)

    @property
    def running_usage(self) -> bool:
        options = self.stream_options
        return self.include_usage and options is not None and bool(options.continuous_usage_stats)

    def check_supported(self) -> None:
        """Refuse what is not there yet, unless the value asks for nothing."""
        if self.use_beam_search:
            raise unsupported("use_beam_search", "this server does not support it.")


class PromptLogprob(msgspec.Struct, kw_only=True):
    """One candidate for a position of the prompt, under its token id."""

    logprob: float
    rank: int
    decoded_token: str


# Per position of the prompt; null for the first, which nothing predicts.
PromptLogprobs = list[dict[str, PromptLogprob] | None]


class PromptTokensDetails(msgspec.Struct):
    cached_tokens: int


class CompletionTokensDetails(msgspec.Struct):
    reasoning_tokens: int


class Usage(msgspec.Struct, kw_only=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: PromptTokensDetails
    completion_tokens_details: CompletionTokensDetails | msgspec.UnsetType = msgspec.UNSET


def usage_of(
    prompt_tokens: int, completion_tokens: int, cached_tokens: int, reasoning_tokens: int | None = None
) -> Usage:
    """`reasoning_tokens`: None where the model does not reason."""
    return Usage(
        prompt_tokens=prompt_tokens,
        completion_tokens=completion_tokens,
        total_tokens=prompt_tokens + completion_tokens,
        prompt_tokens_details=PromptTokensDetails(cached_tokens),
        completion_tokens_details=msgspec.UNSET
        if reasoning_tokens is None
        else CompletionTokensDetails(reasoning_tokens),
    )
