"""Log-probabilities in the chat shape, with the true bytes of every token."""

from __future__ import annotations

from collections.abc import Sequence

from octavo_gateway.api.engine import PositionLogprobs, Tokenizer
from octavo_gateway.protocol.chat import ChatLogprob, TopLogprob

# JSON has no infinity; OpenAI's own stand-in for "as good as impossible".
LEAST_LOGPROB = -9999.0


def token_text(raw: bytes) -> str:
    """A token as text; one that is only part of a character as OpenAI writes it: ``bytes:\\xf0\\x9f``."""
    try:
        return raw.decode("utf-8")
    except UnicodeDecodeError:
        return "bytes:" + "".join(f"\\x{b:02x}" for b in raw)


def finite(logprob: float) -> float:
    """The logprob, or the least one where it is minus infinity (or not a number)."""
    return logprob if logprob > LEAST_LOGPROB else LEAST_LOGPROB


def chat_logprobs(positions: Sequence[PositionLogprobs], top: int, tokenizer: Tokenizer) -> list[ChatLogprob]:
    """One entry per token, each with its `top` best alternatives."""
    entries = []
    for token, logprob, _rank, best in positions:
        raw = tokenizer.token_bytes(token)
        entries.append(
            ChatLogprob(
                token=token_text(raw),
                logprob=finite(logprob),
                bytes=list(raw),
                top_logprobs=[_alternative(t, lp, tokenizer) for t, lp, _ in best[:top]],
            )
        )
    return entries


def _alternative(token: int, logprob: float, tokenizer: Tokenizer) -> TopLogprob:
    raw = tokenizer.token_bytes(token)
    return TopLogprob(token=token_text(raw), logprob=finite(logprob), bytes=list(raw))
