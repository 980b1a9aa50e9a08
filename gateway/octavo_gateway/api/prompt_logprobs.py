"""Log-probabilities of the prompt's own tokens, under vLLM's shape: per position a map from token id to entry."""

from __future__ import annotations

from collections.abc import Sequence

from octavo_gateway.api.engine import Delta, PositionLogprobs, Tokenizer
from octavo_gateway.api.logprobs import finite, token_text
from octavo_gateway.protocol.common import PromptLogprob, PromptLogprobs
from octavo_gateway.protocol.errors import invalid


def checked_prompt_logprobs(asked: int | None, limit: int) -> int | None:
    """The number of alternatives per position; None when the prompt is not to be scored."""
    if asked is not None and not 0 <= asked <= limit:
        raise invalid("prompt_logprobs", f"prompt_logprobs must be from 0 to {limit}, got {asked}.")
    return asked


def positions_of(deltas: Sequence[Delta], prompt_tokens: int) -> Sequence[PositionLogprobs | None]:
    """What the engine found for each token of the prompt; it comes once, with a request's first delta."""
    for delta in deltas:
        positions = delta.prompt_logprobs
        if positions is not None:
            return positions
    return [None] * prompt_tokens


def prompt_logprobs(
    positions: Sequence[PositionLogprobs | None], top: int, tokenizer: Tokenizer
) -> PromptLogprobs:
    """The prompt's token of each position and the `top` best ones there."""
    return [None if p is None else _position(p, top, tokenizer) for p in positions]


def _position(position: PositionLogprobs, top: int, tokenizer: Tokenizer) -> dict[str, PromptLogprob]:
    token, logprob, rank, best = position
    entries = [(token, logprob, rank), *best[:top]]
    return {
        str(t): PromptLogprob(logprob=finite(lp), rank=r, decoded_token=token_text(tokenizer.token_bytes(t)))
        for t, lp, r in entries
    }
