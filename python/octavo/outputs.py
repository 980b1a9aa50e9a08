"""What a request gives back, under vLLM's names."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo.sampling_params import SamplingParams


@dataclass
class Logprob:
    """One candidate at one position, from the raw logits.

    Attributes:
        logprob: natural logarithm of its probability.
        rank: 1 for the most likely token.
        decoded_token: its text; bytes that are no whole character are shown as U+FFFD.
    """

    logprob: float
    rank: int | None = None
    decoded_token: str | None = None


# Token id to logprob: the chosen token and the k most likely ones at one position.
PositionLogprobs = dict[int, Logprob]


@dataclass
class RequestMetrics:
    """When things happened, in seconds of ``time.monotonic()``; 0 where it has not happened."""

    arrival_time: float = 0.0
    first_scheduled_time: float = 0.0
    first_token_time: float = 0.0
    last_token_time: float = 0.0

    @property
    def time_to_first_token(self) -> float:
        return self.first_token_time - self.arrival_time


@dataclass
class CompletionOutput:
    """One continuation of a prompt.

    Attributes:
        index: which of the n continuations.
        text: the generated text, without the stop string unless it was asked for.
        token_ids: the generated token ids.
        cumulative_logprob: sum of the tokens' logprobs, None unless logprobs, best_of or beams were asked for.
        score: of a beam search: cumulative_logprob divided by the length to the power of length_penalty.
        logprobs: one map per token, None unless asked for.
        finish_reason: "stop", "length", "abort" or "error"; None while it runs.
        stop_reason: the stop string or stop token id that ended it; None for the model's own end token.
    """

    index: int
    text: str = ""
    token_ids: list[int] = field(default_factory=list)
    cumulative_logprob: float | None = None
    logprobs: list[PositionLogprobs] | None = None
    score: float | None = None
    finish_reason: str | None = None
    stop_reason: int | str | None = None

    def finished(self) -> bool:
        return self.finish_reason is not None


@dataclass
class RequestOrigin:
    """Where an output comes from: what a fork of it starts with.

    Attributes:
        engine_id: the engine's number for the request.
        params: its sampling parameters.
        token_ids: of each choice, what has been generated so far. They grow with the request.
    """

    engine_id: int
    params: SamplingParams
    token_ids: list[list[int]]


@dataclass
class RequestOutput:
    """A prompt and its continuations.

    Attributes:
        request_id: a unique string.
        prompt: the text, None when token ids were given.
        prompt_token_ids: what the model read.
        prompt_logprobs: one map per prompt token (None for the first), None unless asked for.
        outputs: the continuations.
        finished: whether all of them are complete.
        metrics: when things happened.
        num_cached_tokens: prompt tokens whose keys and values were already in the cache.
        origin: what ``fork`` needs; None in a copy that was pickled.
    """

    request_id: str
    prompt: str | None
    prompt_token_ids: list[int]
    prompt_logprobs: list[PositionLogprobs | None] | None = None
    outputs: list[CompletionOutput] = field(default_factory=list)
    finished: bool = False
    metrics: RequestMetrics | None = None
    num_cached_tokens: int = 0
    origin: RequestOrigin | None = field(default=None, repr=False, compare=False)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "origin": None}
