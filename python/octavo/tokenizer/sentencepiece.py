"""SentencePiece's two models (Kudo and Richardson, 2018) as GGUF files keep them: pieces with scores."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from octavo.tokenizer.merges import merges_by_score
from octavo.tokenizer.token_type import TokenType

if TYPE_CHECKING:
    import tokenizers

_SPACE = "\u2581"
_MERGED = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)


def build_bpe(
    tokens: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    unknown: int | None,
    space_prefix: bool,
) -> tokenizers.Tokenizer:
    """BPE, its merges recovered from the scores; ``space_prefix``: text is read as if a space stood before it, also
    after a control token."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import models, normalizers

    pieces = [token if kind in _MERGED else "" for token, kind in zip(tokens, types, strict=True)]
    model = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=merges_by_score(pieces, scores),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=any(kind == TokenType.BYTE for kind in types),
    )
    backend = Backend(model)
    backend.normalizer = _sequence(normalizers, _spaces(space_prefix))
    backend.decoder = _decoder(space_prefix)
    return backend


def build_unigram(
    tokens: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    unknown: int | None,
    space_prefix: bool,
    charsmap: bytes,
    squeeze_spaces: bool,
) -> tokenizers.Tokenizer:
    """The unigram language model.

    Args:
        charsmap: the compiled character map that normalizes text first; empty for none.
        squeeze_spaces: runs of spaces count as one and those at the ends are dropped.
    """
    from tokenizers import Regex, models, normalizers
    from tokenizers import Tokenizer as Backend

    # What text never becomes gets the worst score there is; SentencePiece has no such paths at all.
    worst = min(scores, default=0.0) - 1e6
    usable = (*_MERGED, TokenType.UNKNOWN)
    vocab = [
        (token, score if kind in usable else worst)
        for token, score, kind in zip(tokens, scores, types, strict=True)
    ]
    fallback = any(kind == TokenType.BYTE for kind in types)
    backend = Backend(models.Unigram(vocab, unk_id=unknown, byte_fallback=fallback))
    steps: list[Any] = [normalizers.Precompiled(charsmap)] if charsmap else []
    if squeeze_spaces:
        steps += [normalizers.Strip(), normalizers.Replace(Regex(" {2,}"), " ")]
    backend.normalizer = _sequence(normalizers, steps + _spaces(space_prefix))
    backend.decoder = _decoder(space_prefix)
    return backend


def _sequence(normalizers: Any, steps: list[Any]) -> Any:
    return steps[0] if len(steps) == 1 else normalizers.Sequence(steps)


def _spaces(prefix: bool) -> list[Any]:
    from tokenizers import normalizers

    spaces = normalizers.Replace(" ", _SPACE)
    return [normalizers.Prepend(_SPACE), spaces] if prefix else [spaces]


def _decoder(space_prefix: bool) -> Any:
    from tokenizers import decoders

    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    return decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if space_prefix else steps)
