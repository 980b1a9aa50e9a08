"""Log-probabilities in the shape of /v1/completions: token strings that join to the text, with their offsets."""

from __future__ import annotations

from codecs import getincrementaldecoder
from collections.abc import Sequence

from octavo_gateway.api.engine import PositionLogprobs, Tokenizer, TopEntries
from octavo_gateway.api.logprobs import finite, token_text
from octavo_gateway.protocol.completions import LegacyLogprobs

_Utf8 = getincrementaldecoder("utf-8")


class LegacyWriter:
    """Turns the positions of one choice into lists, in order; offsets count characters from the text's start.

    A token that is part of a character counts as the text that it completes, so that the strings join to the text.
    """

    def __init__(self, tokenizer: Tokenizer, top: int) -> None:
        self._tokenizer = tokenizer
        self._top = top
        self._offset = 0
        self._utf8 = _Utf8("replace")

    def prompt(
        self, ids: Sequence[int], text: str, positions: Sequence[PositionLogprobs | None]
    ) -> LegacyLogprobs:
        """The entries of an echoed prompt; its first token has no logprob."""
        out = _empty()
        rest = text.encode()
        for token, position in zip(ids, positions, strict=True):
            raw = self._shown(self._tokenizer.token_bytes(token), rest)
            rest = rest[len(raw) :]
            self._add(out, raw, position)
        return out

    def generated(self, positions: Sequence[PositionLogprobs]) -> LegacyLogprobs:
        out = _empty()
        for position in positions:
            self._add(out, self._tokenizer.token_bytes(position[0]), position)
        return out

    def _shown(self, raw: bytes, rest: bytes) -> bytes:
        """What a prompt's token shows of its text: nothing where the tokenizer put it there (BOS)."""
        for candidate in (raw, raw.removeprefix(b" ")):
            if candidate and rest.startswith(candidate):
                return candidate
        return b""

    def _add(self, out: LegacyLogprobs, raw: bytes, position: PositionLogprobs | None) -> None:
        text = self._utf8.decode(raw)
        out.tokens.append(text)
        out.text_offset.append(self._offset)
        self._offset += len(text)
        if position is None:
            out.token_logprobs.append(None)
            out.top_logprobs.append(None)
            return
        token, logprob, _, best = position
        out.token_logprobs.append(finite(logprob))
        out.top_logprobs.append(self._alternatives(token, text, logprob, best))

    def _alternatives(self, token: int, text: str, logprob: float, best: TopEntries) -> dict[str, float]:
        """The best tokens and the chosen one, under the string that `tokens` has for it."""
        entries: dict[str, float] = {}
        for other, other_logprob, _ in best[: self._top]:
            name = text if other == token else token_text(self._tokenizer.token_bytes(other))
            entries.setdefault(name, finite(other_logprob))
        entries.setdefault(text, finite(logprob))
        return entries


def join(parts: Sequence[LegacyLogprobs]) -> LegacyLogprobs:
    out = _empty()
    for part in parts:
        out.tokens += part.tokens
        out.token_logprobs += part.token_logprobs
        out.top_logprobs += part.top_logprobs
        out.text_offset += part.text_offset
    return out


def _empty() -> LegacyLogprobs:
    return LegacyLogprobs(tokens=[], token_logprobs=[], top_logprobs=[], text_offset=[])
