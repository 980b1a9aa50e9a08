"""SentencePiece's BPE (Kudo and Richardson, 2018) as GGUF files keep it: pieces with scores, no merges."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from octavo.tokenizer.token_type import TokenType

if TYPE_CHECKING:
    import tokenizers

_SPACE = "\u2581"


def build(
    tokens: Sequence[str],
    scores: Sequence[float],
    types: Sequence[int],
    *,
    unknown: int | None,
    space_prefix: bool,
) -> tokenizers.Tokenizer:
    """The tokenizer; ``space_prefix``: text is read as if a space stood before it, also after a control token."""
    from tokenizers import Tokenizer as Backend
    from tokenizers import decoders, models, normalizers

    model = models.BPE(
        vocab={token: i for i, token in enumerate(tokens)},
        merges=_merges(tokens, scores, types),
        unk_token=None if unknown is None else tokens[unknown],
        fuse_unk=True,
        byte_fallback=any(kind == TokenType.BYTE for kind in types),
    )
    backend = Backend(model)
    spaces = normalizers.Replace(" ", _SPACE)
    backend.normalizer = (
        normalizers.Sequence([normalizers.Prepend(_SPACE), spaces]) if space_prefix else spaces
    )
    steps = [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse()]
    backend.decoder = decoders.Sequence([*steps, decoders.Strip(" ", 1, 0)] if space_prefix else steps)
    return backend


def _merges(tokens: Sequence[str], scores: Sequence[float], types: Sequence[int]) -> list[tuple[str, str]]:
    """Every way to put a piece together from two others, pieces of the best score first.

    SentencePiece joins the neighbours whose union scores best; a table of merges ordered by that score does the same.
    """
    normal = (TokenType.NORMAL, TokenType.USER_DEFINED, TokenType.UNUSED)
    ids = {t: i for i, (t, kind) in enumerate(zip(tokens, types, strict=True)) if kind in normal}
    ranked = [
        (-scores[i], -cut, cut - len(token), i, token[:cut], token[cut:])
        for token, i in ids.items()
        for cut in range(1, len(token))
        if token[:cut] in ids and token[cut:] in ids
    ]
    ranked.sort()
    return [(left, right) for *_, left, right in ranked]
