"""Temperature, top_k, top_p and min_p against their definition and against transformers."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from sampling_reference import expected, logits, params, probabilities, sampling
from transformers.generation.logits_process import (
    MinPLogitsWarper,
    TemperatureLogitsWarper,
    TopKLogitsWarper,
    TopPLogitsWarper,
)

NO_IDS = torch.zeros((1, 0), dtype=torch.long)
FILTERS = [
    {},
    {"temperature": 0.3},
    {"temperature": 2.5},
    {"top_k": 2},
    {"top_k": 40},
    {"top_k": 999},
    {"top_p": 0.1},
    {"top_p": 0.9},
    {"top_p": 0.999},
    {"min_p": 0.02},
    {"min_p": 0.7},
    {"top_k": 30, "top_p": 0.8},
    {"temperature": 1.7, "top_k": 100, "top_p": 0.95, "min_p": 0.05},
    {"temperature": 0.6, "top_p": 0.95, "min_p": 0.1},
]


def transformers_probabilities(row, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0):
    scores = torch.tensor(row)[None]
    scores = TemperatureLogitsWarper(temperature)(NO_IDS, scores)
    if top_k > 0:
        scores = TopKLogitsWarper(top_k)(NO_IDS, scores)
    if top_p < 1.0:
        scores = TopPLogitsWarper(top_p)(NO_IDS, scores)
    if min_p > 0.0:
        scores = MinPLogitsWarper(min_p)(NO_IDS, scores)
    return scores.softmax(-1)[0].double().numpy()


@pytest.mark.parametrize("fields", FILTERS, ids=str)
@pytest.mark.parametrize("vocab", [1000, 49152])
def test_distribution_equals_transformers(fields, vocab):
    row = logits(seed=vocab, vocab=vocab, spread=2.0)
    got, want = probabilities(row, params(**fields)), transformers_probabilities(row, **fields)
    likely = want > 2.0**-30 * want.max()  # below that a weight may round to 0
    np.testing.assert_array_equal(got[likely] > 0, True)
    assert not got[want == 0].any()
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-9)


@settings(max_examples=150, deadline=None)
@given(
    seed=st.integers(0, 10**6),
    vocab=st.integers(1, 700),
    spread=st.sampled_from([0.0, 0.01, 1.0, 5.0]),
    temperature=st.sampled_from([0.05, 0.5, 1.0, 3.0]),
    top_k=st.integers(0, 900).filter(lambda k: k != 1),
    top_p=st.sampled_from([0.001, 0.25, 0.5, 0.9, 0.99, 1.0]),
    min_p=st.sampled_from([0.0, 1e-4, 0.1, 1.0]),
)
def test_distribution_equals_the_sorted_definition(seed, vocab, spread, temperature, top_k, top_p, min_p):
    row = np.round(logits(seed, vocab, spread), 1)  # rounded: many ties
    fields = {"temperature": temperature, "top_k": top_k, "top_p": top_p, "min_p": min_p}
    # Weights are whole multiples of 2^-30 of the largest: a sum that close to top_p may fall on either side of it.
    shares = np.cumsum(np.sort(expected(row, **{**fields, "top_p": 1.0, "min_p": 0.0}))[::-1])
    assume(np.abs(shares - top_p).min() > 1e-7 or top_p == 1.0)
    got, want = probabilities(row, params(**fields)), expected(row, **fields)
    np.testing.assert_allclose(got, want, rtol=2e-5, atol=2e-8)
    # Equal up to what a cut exactly at a border may do.
    border = np.abs(want) < 2e-8
    np.testing.assert_array_equal(got[~border] > 0, want[~border] > 0)


def test_ties_are_kept_by_lower_id():
    row = np.zeros(200, np.float32)
    assert np.flatnonzero(probabilities(row, params(top_k=5))).tolist() == [0, 1, 2, 3, 4]
    assert np.flatnonzero(probabilities(row, params(top_p=0.125))).tolist() == list(range(25))
    row[150:] = 1.0
    assert np.flatnonzero(probabilities(row, params(top_k=3))).tolist() == [150, 151, 152]
    row[10] = -0.0  # equals 0.0
    assert np.flatnonzero(probabilities(row, params(top_k=62))).tolist() == [*range(12), *range(150, 200)]


@pytest.mark.parametrize("top_k", [-1, 0, 1000, 1001, 10**9])
def test_top_k_off_or_above_the_vocabulary_keeps_all(top_k):
    row = logits()
    np.testing.assert_array_equal(probabilities(row, params(top_k=top_k)), probabilities(row, params()))


def test_top_k_comes_before_top_p_and_min_p_last():
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    # Of the two left by top_k the first holds 4/7 > 0.5; of all four it would not.
    assert np.flatnonzero(probabilities(row, params(top_k=2, top_p=0.5))).tolist() == [0]
    assert np.flatnonzero(probabilities(row, params(top_p=0.5))).tolist() == [0, 1]
    # Were min_p first, the first two would hold all, and 0.55 of that would be reached by the first alone.
    assert np.flatnonzero(probabilities(row, params(top_p=0.55, min_p=0.7))).tolist() == [0, 1]


def test_temperature_comes_before_top_p_and_min_p():
    row = np.log(np.array([0.4, 0.3, 0.2, 0.1], np.float32))
    assert np.flatnonzero(probabilities(row, params(temperature=0.1, top_p=0.9))).tolist() == [0]
    assert np.flatnonzero(probabilities(row, params(temperature=10.0, min_p=0.8))).tolist() == [0, 1, 2, 3]


def test_masked_tokens_are_never_candidates():
    row = np.full(300, -np.inf, np.float32)
    row[[7, 250]] = [0.0, 1.0]
    for fields in ({}, {"top_k": 10}, {"top_p": 0.99999}, {"min_p": 1e-9}, {"temperature": 100.0}):
        assert np.flatnonzero(probabilities(row, params(**fields))).tolist() == [7, 250]
        assert set(sampling.sample_many(row, params(**fields), 50)) <= {7, 250}
