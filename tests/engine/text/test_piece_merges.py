"""The merges recovered from scores make BPE cut text as the scores themselves do."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo import _engine
from octavo.errors import ModelError


def by_scores(text: str, rank: dict[str, int]) -> list[str]:
    """SentencePiece's rule: join the neighbours whose union scores best, leftmost first, until none is a piece."""
    symbols = list(text)
    while True:
        unions = [
            (rank[a + b], i)
            for i, (a, b) in enumerate(itertools.pairwise(symbols))
            if a + b in rank and a in rank and b in rank
        ]
        if not unions:
            return symbols
        _, i = min(unions)
        symbols[i : i + 2] = [symbols[i] + symbols[i + 1]]


@settings(max_examples=300, deadline=None)
@given(
    pieces=st.lists(st.text("abé", min_size=2, max_size=6), unique=True, max_size=25),
    text=st.text("abé", min_size=1, max_size=30),
)
def test_bpe_by_the_merges_equals_bpe_by_the_scores(pieces: list[str], text: str) -> None:
    from tokenizers import Tokenizer, models

    vocab = ["a", "b", "é", *pieces]
    merges = _engine.piece_merges(vocab, -np.arange(len(vocab), dtype=np.float32))
    assert len(merges) == len({left + right for left, right in merges})
    rank = {piece: i for i, piece in enumerate(vocab)}
    backend = Tokenizer(models.BPE(vocab=rank, merges=merges))
    assert backend.encode(text).tokens == by_scores(text, rank)


def test_better_scores_come_first_and_empty_pieces_take_no_part() -> None:
    pieces = ["a", "b", "c", "ab", "bc", "", "abc"]
    assert _engine.piece_merges(pieces, np.array([0, 0, 0, -3, -1, 9, -2], np.float32)) == [
        ("b", "c"),
        ("a", "bc"),
        ("a", "b"),
    ]


def test_hostile_vocabularies_take_no_time() -> None:
    long = ["a" * n for n in range(1, 400)] + ["b" * 2**20, "ab" * 2**19]
    assert len(_engine.piece_merges(long, np.zeros(len(long), np.float32))) > 100
    assert _engine.piece_merges([], np.zeros(0, np.float32)) == []


def test_scores_that_cannot_be() -> None:
    with pytest.raises(ModelError, match="score 1 is not a number"):
        _engine.piece_merges(["a", "b"], np.array([0, np.nan], np.float32))
    with pytest.raises(ModelError, match="1 scores for 2 pieces"):
        _engine.piece_merges(["a", "b"], np.zeros(1, np.float32))
    with pytest.raises(UnicodeEncodeError):
        _engine.piece_merges(["\ud800"], np.zeros(1, np.float32))
