"""Drawing: greedy, seeds, distributions, extreme values."""

from __future__ import annotations

import math
import struct

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sampling_reference import VOCAB, logits, params, probabilities, sampling, state

from octavo.errors import InvalidArgumentError, OctavoError

GREEDY = [
    {"temperature": 0.0},
    {"temperature": 1e-7},
    {"temperature": 9.9e-6},
    {"top_p": 0.0},
    {"top_k": 1},
    {"temperature": 0.0, "top_k": 50, "top_p": 0.5, "min_p": 0.5},
]


def expected_draw(row, p, position, choice):
    """The inverse of the cumulative distribution over ascending ids at Philox(seed; position, choice)."""
    weights = sampling.distribution(row, p)
    key = list(struct.unpack("<2I", struct.pack("<Q", p.seed)))
    r = sampling.philox4x32([position, choice, 0, 0], key)
    target = ((r[1] << 32 | r[0]) * sum(w for _, w in weights)) >> 64
    for token, weight in weights:
        if target < weight:
            return token
        target -= weight
    raise AssertionError


@pytest.mark.parametrize("fields", GREEDY, ids=str)
@pytest.mark.parametrize("vocab", [1, 7, 64, 65, 49152])
def test_greedy_takes_the_largest(fields, vocab):
    for seed in range(5):
        row = logits(seed, vocab)
        assert sampling.sample(row, params(**fields)) == int(np.argmax(row))


def test_greedy_takes_the_lowest_id_among_equals():
    for first in (0, 1, 63, 64, 500):
        row = np.zeros(VOCAB, np.float32)
        row[[first, 501, 998]] = 2.5
        assert sampling.sample(row, params(temperature=0.0)) == first
    row = np.full(VOCAB, -1.0, np.float32)
    row[[3, 9]] = [-0.0, 0.0]
    assert sampling.sample(row, params(temperature=0.0)) == 3


@pytest.mark.parametrize("temperature", [0.0, 1e-7, 1e-5, 1e-4, 1e-3])
def test_tiny_temperatures_equal_greedy(temperature):
    for seed in range(20):
        row = logits(seed, spread=30.0)
        assert sampling.sample(row, params(temperature=temperature, seed=seed)) == int(np.argmax(row))


@pytest.mark.parametrize(
    "fields", [{}, {"top_k": 20}, {"top_p": 0.8}, {"min_p": 0.1}, {"temperature": 2.0}], ids=str
)
def test_a_draw_inverts_the_cumulative_distribution(fields):
    for seed in (0, 1, 2**64 - 1, 0x123456789ABCDEF):
        row, p = logits(seed % 97), params(seed=seed, **fields)
        for position, choice in ((0, 0), (1, 0), (0, 1), (2**31 - 1, 3)):
            got = sampling.sample(row, p, position=position, choice=choice)
            assert got == expected_draw(row, p, position, choice)


def test_seed_position_and_choice_each_change_the_draw():
    row = np.zeros(VOCAB, np.float32)
    base = [sampling.sample(row, params(seed=7), position=i) for i in range(20)]
    assert base == [sampling.sample(row, params(seed=7), position=i) for i in range(20)]
    assert base == sampling.sample_many(row, params(seed=7), 20)
    assert len(set(base)) > 15
    assert base != [sampling.sample(row, params(seed=8), position=i) for i in range(20)]
    assert base != [sampling.sample(row, params(seed=7 + 2**32), position=i) for i in range(20)]
    assert base != [sampling.sample(row, params(seed=7), position=i, choice=1) for i in range(20)]


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"temperature": 0.5},
        {"temperature": 3.0},
        {"top_k": 8},
        {"top_p": 0.7},
        {"min_p": 0.2},
        {"temperature": 1.5, "top_k": 12, "top_p": 0.9, "min_p": 0.05},
    ],
    ids=str,
)
def test_draws_follow_the_distribution(fields):
    row, count = logits(3, vocab=40, spread=1.2), 40_000
    want = count * probabilities(row, params(**fields))
    got = np.bincount(sampling.sample_many(row, params(seed=11, **fields), count), minlength=40)
    assert got[want == 0].sum() == 0
    common = want >= 5
    rest = ~common & (want > 0)
    want = np.append(want[common], want[rest].sum())
    got = np.append(got[common], got[rest].sum())
    chi_square = ((got - want) ** 2 / np.maximum(want, 1e-9)).sum()
    freedom = max(common.sum() - 1, 1)
    assert chi_square < freedom + 4.5 * math.sqrt(2 * freedom)


def test_a_rare_token_is_drawn_as_often_as_it_should():
    row = np.zeros(2, np.float32)
    row[1] = math.log(1e-3)
    drawn = sum(sampling.sample_many(row, params(seed=5), 200_000))
    assert abs(drawn - 200) < 60


@settings(max_examples=60, deadline=None)
@given(
    values=st.lists(st.floats(width=32, allow_nan=False, max_value=2.0**127), min_size=1, max_size=200),
    temperature=st.sampled_from([1e-5, 1e-3, 1.0, 100.0]),
    top_k=st.sampled_from([0, 2, 50, 10**9]),
    top_p=st.sampled_from([1e-9, 0.5, 1.0 - 2**-24, 1.0]),
    min_p=st.sampled_from([0.0, 1e-30, 1.0]),
)
def test_any_finite_row_gives_a_token_that_is_not_masked(values, temperature, top_k, top_p, min_p):
    row = np.array(values, np.float32)
    p = params(temperature=temperature, top_k=top_k, top_p=top_p, min_p=min_p)
    if np.isneginf(row).all():
        with pytest.raises(OctavoError, match="not finite"):
            sampling.sample(row, p)
    else:
        assert row[sampling.sample(row, p)] > -np.inf


@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("place", [0, 63, 64, 511, 999])
@pytest.mark.parametrize(
    "fields", [{"temperature": 0.0}, {}, {"top_k": 5}, {"allowed_token_ids": [1, 2]}], ids=str
)
def test_a_row_that_is_not_finite_fails(bad, place, fields):
    row = logits()
    row[place] = bad
    with pytest.raises(OctavoError, match="not finite"):
        sampling.sample(row, params(**fields))
    with pytest.raises(OctavoError, match="not finite"):
        sampling.score(row, 5)


def test_masks_that_leave_nothing_fail_by_name():
    p = params(allowed_token_ids=[4], stop_token_ids=[4], min_tokens=1)
    with pytest.raises(InvalidArgumentError, match="no token is left"):
        sampling.sample(logits(), p)
    assert sampling.sample(logits(), p, state(p, output=[4])) == 4


def test_the_wrong_arguments_are_named():
    with pytest.raises(InvalidArgumentError, match="logits must not be empty"):
        sampling.sample(np.zeros(0, np.float32), params())
    with pytest.raises(InvalidArgumentError, match="mask must have 32 words, got 1"):
        sampling.sample(logits(), params(), mask=np.zeros(1, np.uint32))
    with pytest.raises(InvalidArgumentError, match="temperature must be between 0 and 100"):
        sampling.sample(logits(), params(temperature=101.0))
