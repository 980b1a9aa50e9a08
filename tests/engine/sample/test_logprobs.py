"""Log-probabilities, ranks and the best tokens, from raw logits, against torch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import logits, sampling

from octavo.errors import InvalidArgumentError


def log_softmax(row):
    return torch.tensor(row).double().log_softmax(0).numpy()


@pytest.mark.parametrize("vocab", [1, 8, 64, 1000, 49152])
@pytest.mark.parametrize("spread", [0.1, 3.0, 40.0])
def test_logprob_and_rank(vocab, spread):
    row = logits(vocab, vocab, spread)
    want = log_softmax(row)
    for token in {0, vocab // 2, vocab - 1, int(np.argmax(row))}:
        (got, logprob, rank), top = sampling.score(row, token)
        assert (got, rank, top) == (token, 1 + int((row > row[token]).sum()), [])
        assert logprob == pytest.approx(want[token], abs=2e-6, rel=1e-6)


@pytest.mark.parametrize("top", [1, 5, 20, 767, 769, 49152, 60000])
def test_the_best_are_sorted_and_complete(top):
    row = logits(1, 49152)
    want = log_softmax(row)
    order = np.lexsort((np.arange(len(row)), -row))[:top]
    _, best = sampling.score(row, 0, top)
    assert [t for t, _, _ in best] == order.tolist()
    ranks = 1 + np.searchsorted(np.sort(-row), -row[order])
    assert [r for _, _, r in best] == ranks.tolist()
    np.testing.assert_allclose([x for _, x, _ in best], want[order], atol=2e-6, rtol=1e-6)
    assert sampling.best_tokens(row, top) == best


@settings(max_examples=100, deadline=None)
@given(
    values=st.lists(st.sampled_from([-np.inf, -2.0, -0.0, 0.0, 1.0, 3.0]), min_size=1, max_size=300),
    top=st.integers(0, 310),
)
def test_equal_logits_share_a_rank_and_go_by_id(values, top):
    row = np.array([*values, 0.5], np.float32)
    order = np.lexsort((np.arange(len(row)), -row))[:top]
    ranks = [1 + int((row > row[t]).sum()) for t in order]
    _, best = sampling.score(row, 0, top)
    assert [(t, r) for t, _, r in best] == list(zip(order.tolist(), ranks, strict=True))


def test_logprobs_are_finite_and_serialise():
    row = np.full(100, -np.inf, np.float32)
    row[[3, 4]] = [0.0, -1e30]
    chosen, best = sampling.score(row, 7, 5)
    assert chosen == (7, -9999.0, 3)
    assert [x for _, x, _ in best] == [0.0, -9999.0, -9999.0, -9999.0, -9999.0]
    json.dumps([chosen, best], allow_nan=False)


def test_a_token_out_of_vocabulary_is_named():
    for token in (-1, 1000):
        with pytest.raises(InvalidArgumentError, match=r"token must be in \[0, 1000\)"):
            sampling.score(logits(), token)
