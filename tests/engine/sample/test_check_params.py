"""Every parameter has a range; what is out of it is refused by name, value and limit."""

from __future__ import annotations

import math

import pytest
from sampling_reference import params

from octavo import _engine

VOCAB = 100
INF = math.inf
NAN = math.nan

GOOD = [
    {},
    {"temperature": 0.0},
    {"temperature": 100.0},
    {"top_p": 0.0},
    {"top_p": 1.0},
    {"top_k": -1},
    {"top_k": 0},
    {"top_k": VOCAB + 1},
    {"top_k": 2**31 - 1},
    {"min_p": 1.0},
    {"repetition_penalty": 0.01},
    {"presence_penalty": -2.0, "frequency_penalty": 2.0},
    {"max_tokens": 1},
    {"max_tokens": 5, "min_tokens": 5},
    {"logprobs": VOCAB, "prompt_logprobs": 0},
    {"logit_bias": [(0, 100.0), (99, -100.0)]},
    {"stop_token_ids": [0, 99], "min_tokens": 1},
    {"allowed_token_ids": [0, 99]},
    {"bad_words": [[99], [0, 1, 2]]},
    {"stop": ["END", "終わり", "😀"]},
    {"stop": ["x"] * 1024},
    {"detokenize": False},
    {"seed": 2**64 - 1},
]

BAD = [
    ({"temperature": -0.1}, "temperature must be between 0 and 100, got -0.1"),
    ({"temperature": 1e6}, "temperature must be between 0 and 100, got 1e+06"),
    ({"temperature": NAN}, "got nan"),
    ({"temperature": INF}, "got inf"),
    ({"top_p": -1.0}, "top_p must be between 0 and 1, got -1"),
    ({"top_p": 1.01}, "top_p must be between 0 and 1"),
    ({"top_p": NAN}, "top_p must be between 0 and 1"),
    ({"top_k": -2}, "top_k must be between -1 and 2147483647, got -2"),
    ({"min_p": 1.5}, "min_p must be between 0 and 1"),
    ({"min_p": NAN}, "min_p must be between 0 and 1"),
    ({"repetition_penalty": 0.0}, "repetition_penalty must be between 0.01 and 100, got 0"),
    ({"repetition_penalty": -1.0}, "repetition_penalty must be"),
    ({"repetition_penalty": INF}, "repetition_penalty must be"),
    ({"presence_penalty": 2.1}, "presence_penalty must be between -2 and 2"),
    ({"presence_penalty": NAN}, "presence_penalty must be between -2 and 2"),
    ({"frequency_penalty": -INF}, "frequency_penalty must be between -2 and 2"),
    ({"max_tokens": 0}, "max_tokens must be between 1 and"),
    ({"max_tokens": 3, "min_tokens": 4}, "min_tokens must be between 0 and 3, got 4"),
    ({"min_tokens": -1}, "min_tokens must be"),
    ({"logprobs": -2}, "logprobs must be between -1 and 100, got -2"),
    ({"logprobs": 101}, "logprobs must be between -1 and 100"),
    ({"prompt_logprobs": 101}, "prompt_logprobs must be between -1 and 100"),
    (
        {"logit_bias": [(100, 1.0)]},
        "logit_bias names token id 100, which is out of vocabulary: ids are 0 to 99",
    ),
    ({"logit_bias": [(-1, 1.0)]}, "logit_bias names token id -1"),
    ({"logit_bias": [(1, 100.5)]}, "logit_bias must be between -100 and 100, got 100.5"),
    ({"logit_bias": [(1, NAN)]}, "logit_bias must be between -100 and 100, got nan"),
    ({"logit_bias": [(1, 1.0)] * 101}, "logit_bias has 101 entries, at most 100"),
    ({"stop_token_ids": [VOCAB], "min_tokens": 1}, "stop_token_ids names token id 100"),
    ({"stop_token_ids": [-1]}, "stop_token_ids names token id -1"),
    ({"stop_token_ids": [0] * 101}, "stop_token_ids has 101 ids, at most 100"),
    ({"allowed_token_ids": [999999]}, "allowed_token_ids names token id 999999"),
    ({"allowed_token_ids": [0] * 101}, "allowed_token_ids has 101 ids"),
    ({"bad_words": [[]]}, "bad_words has an entry without tokens"),
    ({"bad_words": [[1, 100]]}, "bad_words names token id 100"),
    ({"bad_words": [[1]] * 4097}, "bad_words has 4097 entries, at most 4096"),
    ({"bad_words": [[1] * 40000, [2] * 40000]}, "bad_words has 80000 tokens, at most 65536"),
    ({"stop": ["a", ""]}, "stop has an empty string"),
    ({"stop": ["x"] * 1025}, "stop has 1025 strings, at most 1024"),
    ({"stop": ["x" * 70000]}, "stop has 70000 bytes, at most 65536"),
    ({"stop": ["x"], "detokenize": False}, "stop needs detokenize=True"),
]


@pytest.mark.parametrize("fields", GOOD, ids=str)
def test_what_is_in_range_is_accepted(fields):
    assert _engine.check_params(params(**fields), VOCAB) is None


@pytest.mark.parametrize(("fields", "message"), BAD, ids=lambda x: str(x)[:60])
def test_what_is_out_of_range_is_refused_by_name(fields, message):
    refusal = _engine.check_params(params(**fields), VOCAB)
    assert message in str(refusal)
    assert refusal.code == "invalid_argument"
    assert refusal.param in fields
    assert str(refusal).startswith(refusal.param)
    assert len(str(refusal)) < 1000


def test_a_refusal_has_the_numbers():
    refusal = _engine.check_params(params(stop_token_ids=[3, 250]), VOCAB)
    assert (refusal.param, refusal.value, refusal.limit) == ("stop_token_ids", 250, 99)
    refusal = _engine.check_params(params(max_tokens=8, min_tokens=9), VOCAB)
    assert (refusal.param, refusal.value, refusal.limit) == ("min_tokens", 9, 8)
