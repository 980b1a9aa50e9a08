"""Perplexity: how surprised a model is by a text, token by token."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from octavo import checks
from octavo.errors import InvalidArgumentError, from_engine
from octavo.loading import LoadedModel
from octavo.sampling_params import SamplingParams

# Windows that the engine holds at once: enough to keep it busy, few enough to keep their logprobs small.
_IN_FLIGHT = 4
_WAIT_MS = 100


@dataclass(frozen=True)
class Window:
    """What the model reads at once, and which of it counts.

    Attributes:
        ids: the tokens.
        first: the first position that is scored; those before it are context.
    """

    ids: list[int]
    first: int


@dataclass(frozen=True)
class Estimate:
    """A mean over tokens, as its exponential.

    Attributes:
        value: exp of the mean.
        error: its standard error, the tokens taken as independent.
        mean, mean_error: the mean itself, in nats per token.
    """

    value: float
    error: float
    mean: float
    mean_error: float


def estimate(values: Sequence[float]) -> Estimate:
    """exp of the mean of ``values``; of one value the error is infinite."""
    count = len(values)
    mean = math.fsum(values) / count
    spread = math.fsum((value - mean) ** 2 for value in values)
    error = math.sqrt(spread / (count - 1) / count) if count > 1 else math.inf
    value = math.exp(mean) if mean < 700 else math.inf
    return Estimate(value, value * error, mean, error)


def windows(ids: Sequence[int], before: Sequence[int], window: int, stride: int) -> Iterator[Window]:
    """Cut a text so that every token that can be is scored once, with at least ``window - stride`` tokens before it.

    Args:
        ids: the text.
        before: what each window starts with (BOS).
        window: tokens per window, ``before`` included.
        stride: tokens from one window's start to the next one's.
    """
    room = window - len(before)
    checks.integer("stride", stride, 1, room)
    done = 0
    for start in range(0, len(ids), stride):
        end = min(start + room, len(ids))
        first = len(before) + done - start
        # Nothing stands before the very first position, so it has no probability.
        yield Window([*before, *ids[start:end]], max(first, 1))
        done = end
        if end == len(ids):
            return


def token_losses(model: LoadedModel, cuts: Iterable[Window]) -> list[float]:
    """Minus the natural logarithm of each scored token's probability, window after window."""
    params = SamplingParams(temperature=0.0, max_tokens=1, prompt_logprobs=0, ignore_eos=True)
    channel = model.engine.open_channel()
    found: dict[int, list[float]] = {}
    waiting: dict[int, tuple[int, int]] = {}  # request → number of its window, first scored position
    queue = enumerate(cut for cut in cuts if cut.first < len(cut.ids))
    try:
        with model.waiting():
            while _fill(model, params, channel, queue, waiting):
                channel.wait(_WAIT_MS)
                for delta in channel.drain():
                    if delta.error is not None:
                        raise from_engine(*delta.error)
                    if delta.prompt_logprobs is not None:
                        number, first = waiting[delta.id]
                        scored = delta.prompt_logprobs[
                            first:
                        ]  # None stands for position 0 only, which is not scored
                        found[number] = [-position[1] for position in scored if position is not None]
                    if delta.finish is not None:
                        del waiting[delta.id]
    finally:
        model.engine.close_channel(channel)
    return [loss for number in sorted(found) for loss in found[number]]


def _fill(model: LoadedModel, params: SamplingParams, channel: Any, queue: Any, waiting: Any) -> bool:
    """Hand out windows while there is room; whether any is still to be waited for."""
    while len(waiting) < _IN_FLIGHT and (entry := next(queue, None)) is not None:
        number, cut = entry
        waiting[model.submit(cut.ids, params, channel)] = (number, cut.first)
    return bool(waiting)


def encode(model: LoadedModel, texts: Iterable[str], limit: int | None = None) -> list[list[int]]:
    """The texts' token ids without special tokens, ``limit`` in all."""
    tokenizer = model.require_tokenizer("texts")
    out, left = [], math.inf if limit is None else limit
    for text in texts:
        ids = tokenizer.encode(text, add_special_tokens=False)
        ids = ids[: int(min(left, len(ids)))]
        left -= len(ids)
        if ids:
            out.append(ids)
    if sum(map(len, out)) < 2:
        raise InvalidArgumentError("the text must have at least two tokens", param="text")
    return out


def losses(model: LoadedModel, texts: Sequence[Sequence[int]], window: int, stride: int) -> list[float]:
    """Each scored token's loss; every window starts with what the tokenizer puts before a text (BOS)."""
    before, _ = model.require_tokenizer("texts").special_affixes
    checks.integer("window", window, len(before) + 2, model.max_model_len - 1)
    return token_losses(model, (cut for ids in texts for cut in windows(ids, before, window, stride)))


def sample_text() -> str:
    """Openings of works in the public domain, about 1,450 tokens of English."""
    return (Path(__file__).parent / "sample.txt").read_text("utf-8")
