"""The stages that change logits, alone against transformers and torch, and their order."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from sampling_reference import VOCAB, logits, params, probabilities, sampling, state
from transformers.generation.logits_process import (
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
    SequenceBiasLogitsProcessor,
)


def processed(processor, row, ids):
    return processor(torch.tensor([list(ids)], dtype=torch.long), torch.tensor(row)[None])[0].numpy()


def test_logit_bias():
    row = logits()
    got = row.copy()
    sampling.apply_logit_bias(got, params(logit_bias=[(5, 3.5), (999, -100.0)]))
    want = processed(SequenceBiasLogitsProcessor([[[5], 3.5], [[999], -100.0]]), row, [0])
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("penalty", [0.5, 1.3, 2.0])
def test_repetition_penalty_is_over_prompt_and_output(penalty):
    row, prompt, output = logits(), [1, 2, 3, 3, 999], [3, 7, 7, 64]
    p, got = params(repetition_penalty=penalty), row.copy()
    sampling.apply_penalties(got, p, state(p, prompt, output))
    want = processed(RepetitionPenaltyLogitsProcessor(penalty), row, prompt + output)
    np.testing.assert_allclose(got, want, rtol=1e-6)


def test_presence_and_frequency_are_over_the_output_alone():
    row, prompt, output = logits(), [1, 1, 2], [2, 7, 7, 7]
    p, got = params(presence_penalty=0.7, frequency_penalty=-0.3), row.copy()
    sampling.apply_penalties(got, p, state(p, prompt, output))
    counts = torch.bincount(torch.tensor(output), minlength=VOCAB)
    want = torch.tensor(row) - 0.7 * (counts > 0) + 0.3 * counts
    np.testing.assert_allclose(got, want.numpy(), rtol=1e-6)


def test_repetition_comes_before_presence_and_frequency():
    row = np.full(10, 4.0, np.float32)
    p = params(repetition_penalty=2.0, presence_penalty=1.0, frequency_penalty=0.5)
    sampling.apply_penalties(row, p, state(p, [], [3, 3]))
    assert row[3] == 4.0 / 2.0 - 1.0 - 2 * 0.5


def test_a_long_history_is_counted_whole():
    rng = np.random.default_rng(1)
    output = rng.integers(0, VOCAB, 5000).tolist()
    row = logits()
    p, got = params(frequency_penalty=0.01), row.copy()
    s = state(p, [], output)
    sampling.apply_penalties(got, p, s)
    np.testing.assert_allclose(got, row - 0.01 * np.bincount(output, minlength=VOCAB), rtol=1e-4, atol=1e-5)
    assert s.output == output


def test_a_looping_output_is_broken_by_a_presence_penalty():
    row = np.zeros(VOCAB, np.float32)
    row[[5, 6]] = [3.0, 2.0]
    p = params(temperature=0.0, presence_penalty=2.0)
    assert sampling.sample(row, p, state(p, [5, 5, 5])) == 5
    assert sampling.sample(row, p, state(p, [5, 5, 5], [5])) == 6


def test_state_rolls_back_and_forks():
    row, p = logits(), params(frequency_penalty=1.0, repetition_penalty=1.5)
    want = row.copy()
    sampling.apply_penalties(want, p, state(p, [4], [8]))
    s = state(p, [4], [8])
    fork = s.fork()
    for token in (9, 9, 8):
        s.append(token)
    assert fork.output == [8]
    assert s.output == [8, 9, 9, 8]
    s.rollback(3)
    for each in (s, fork):
        got = row.copy()
        sampling.apply_penalties(got, p, each)
        np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("output", [[], [1], [1, 2], [2, 1], [1, 2, 3], [9, 1, 2], [7, 7]])
def test_bad_words(output):
    words = [[5], [1, 2, 3], [2, 4], [7, 7, 7], [1, 1]]
    row, p = logits(), params(bad_words=words)
    got = row.copy()
    sampling.apply_bad_words(got, p, state(p, [], output))
    want = processed(NoBadWordsLogitsProcessor(words), row, [100, *output])
    np.testing.assert_array_equal(got, want)


def test_a_bad_word_begun_by_the_prompt_is_allowed():
    row, p = logits(), params(bad_words=[[1, 2]])
    got = row.copy()
    sampling.apply_bad_words(got, p, state(p, [1], []))
    np.testing.assert_array_equal(got, row)


@pytest.mark.parametrize("length", [0, 1, 2, 3, 10])
def test_min_tokens_masks_stop_tokens(length):
    row, p = logits(), params(min_tokens=3, max_tokens=20, stop_token_ids=[0, 999])
    got = row.copy()
    sampling.apply_min_tokens(got, p, length)
    want = processed(MinNewTokensLengthLogitsProcessor(2, 3, [0, 999]), row, [1, 1, *range(length)])
    np.testing.assert_array_equal(got, want)


def test_allowed_tokens():
    row, got = logits(), logits()
    sampling.apply_allowed_tokens(got, params(allowed_token_ids=[0, 63, 64, 999, 64]))
    want = np.full(VOCAB, -np.inf, np.float32)
    want[[0, 63, 64, 999]] = row[[0, 63, 64, 999]]
    np.testing.assert_array_equal(got, want)


@pytest.mark.parametrize("vocab", [31, 32, 33, 1000])
def test_a_constraint_mask_allows_what_its_bits_say(vocab):
    row = logits(vocab=vocab)
    allowed = np.random.default_rng(vocab).random(vocab) < 0.2
    allowed[vocab - 1] = True
    bits = np.zeros((vocab + 31) // 32 * 32, np.uint8)
    bits[:vocab] = allowed
    mask = np.packbits(bits, bitorder="little").view(np.uint32)
    got = probabilities(row, params(), mask=mask)
    want = np.where(allowed, np.exp(row.astype(np.float64)), 0.0)
    np.testing.assert_allclose(got, want / want.sum(), rtol=1e-5, atol=1e-8)


def test_a_bias_cannot_lift_what_a_mask_forbids():
    p = params(temperature=0.0, logit_bias=[(3, 100.0), (4, 50.0)], allowed_token_ids=[3, 4], bad_words=[[3]])
    assert sampling.sample(logits(), p) == 4
    mask = np.full(32, 0xFFFFFFFF, np.uint32)
    mask[0] &= ~np.uint32(1 << 4)
    p = params(temperature=0.0, logit_bias=[(4, 100.0), (6, 90.0)])
    assert sampling.sample(logits(), p, mask=mask) == 6


def test_bias_comes_before_the_repetition_penalty():
    row = np.zeros(10, np.float32)
    p = params(temperature=0.0, logit_bias=[(2, 4.0), (3, 3.0)], repetition_penalty=2.0)
    assert (
        sampling.sample(row, p, state(p, [2])) == 3
    )  # 4 / 2 < 3; a penalty before the bias would change nothing


def test_penalties_come_before_the_temperature():
    row = np.zeros(2, np.float32)
    p = params(temperature=0.5, presence_penalty=1.0)
    got = probabilities(row, p, state(p, [], [0]))
    np.testing.assert_allclose(got, torch.tensor([-2.0, 0.0]).softmax(0).numpy(), rtol=1e-5)


def test_raw_logits_are_left_alone():
    row = logits()
    before = row.copy()
    p = params(logit_bias=[(5, 3.0)], repetition_penalty=2.0, allowed_token_ids=[1, 5])
    sampling.sample(row, p, state(p, [5], [1]))
    np.testing.assert_array_equal(row, before)
