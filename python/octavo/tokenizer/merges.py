"""The merges that a BPE vocabulary implies when its file has none."""

from __future__ import annotations

from collections.abc import Sequence

from octavo import _engine


def merges_by_score(pieces: Sequence[str], scores: Sequence[float]) -> list[tuple[str, str]]:
    """Pairs of pieces that BPE joins, those whose union scores best first; "" takes no part.

    BPE that knows scores (SentencePiece) or ranks (tiktoken) joins the neighbours whose union scores best. A table of
    merges in that order does the same.
    """
    import numpy as np

    with np.errstate(over="ignore"):  # a score beyond float32's range is infinite
        ranked = np.asarray(scores, np.float32)
    merges: list[tuple[str, str]] = _engine.piece_merges(list(pieces), ranked)
    return merges
