"""Every sampling parameter is checked by name, value and limit, and reaches the engine."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from octavo import RequestOutputKind, SamplingParams
from octavo.errors import InvalidArgumentError
from octavo.tokenizer import Tokenizer

VOCAB = 49152


def engine_params(tokenizer: Tokenizer | None = None, **kwargs: Any) -> Any:
    return SamplingParams(**kwargs).to_engine(
        vocab_size=VOCAB, eos_token_ids=[2], tokenizer=tokenizer, max_new_tokens=1000
    )


@pytest.mark.parametrize(
    ("name", "values"),
    [
        ("temperature", [-0.1, 101, math.nan, math.inf, "1", None, True, 10**400]),
        ("top_p", [-0.1, 1.1, math.nan, "x"]),
        ("top_k", [-2, 1.5, True, None]),
        ("min_p", [-0.1, 1.1]),
        ("repetition_penalty", [0, -1, 11, math.inf]),
        ("presence_penalty", [-2.1, 2.1]),
        ("frequency_penalty", [-2.1, 2.1]),
        ("seed", [2**64, -(2**63) - 1, 1.0, "7"]),
        ("max_tokens", [0, -1, 1.5, 2**31]),
        ("min_tokens", [-1, 17, 2.0]),
        ("logprobs", [-1, 1.0, True]),
        ("prompt_logprobs", [-1, "all"]),
        ("stop", ["", ["a", ""], [1], 5, "\ud800"]),
        ("bad_words", [[""], 3]),
        ("stop_token_ids", [[-1], [1.0], [True], ["a"], 5, "12"]),
        ("allowed_token_ids", [[], [-1]]),
        ("logit_bias", [{1: 101}, {1: math.nan}, {"1": 1}, {-1: 1}, [1]]),
        ("n", [0, -1, 2**31, 1.0, True, None]),
        ("best_of", [0, -1, 1.5]),
        ("ignore_eos", [1, None]),
        ("skip_special_tokens", ["yes"]),
        ("truncate_prompt_tokens", [0, -1]),
        ("logits_processors", [[len]]),
        ("structured_outputs", [{}, {"json": "{}", "regex": "a"}, {"jason": {}}, 5]),
        ("guided_decoding", [{"regex": "x"}]),
        ("extra_args", [{"a": 1}]),
        ("output_kind", ["delta"]),
    ],
)
def test_values_out_of_range_are_named(name: str, values: list[Any]) -> None:
    for value in values:
        with pytest.raises(InvalidArgumentError, match=name) as caught:
            SamplingParams(**{name: value})
        assert caught.value.param == name
        assert isinstance(caught.value, ValueError)
        assert len(str(caught.value)) < 400


def test_numbers_of_numpy_are_taken_as_pythons() -> None:
    given = SamplingParams(
        n=np.int32(2), temperature=np.float32(0.5), top_p=np.float16(0.5), seed=np.uint64(5), max_tokens=np.int64(3),
        logprobs=np.int8(1), stop_token_ids=np.array([4, 5]), logit_bias={np.int64(5): np.float64(3)},
    )  # fmt: skip
    plain = SamplingParams(n=2, temperature=0.5, top_p=0.5, seed=5, max_tokens=3, logprobs=1)
    for name in ("n", "temperature", "top_p", "seed", "max_tokens", "logprobs"):
        value = getattr(given, name)
        assert value == getattr(plain, name) and type(value) in (int, float)
    native = engine_params(stop_token_ids=np.array([4, 5]), logit_bias={np.int64(5): np.float64(3)})
    assert native.logit_bias == [(5, 3.0)] and {4, 5} <= set(native.stop_token_ids)
    for wrong in ({"n": np.True_}, {"n": np.float32(2)}, {"temperature": np.array([0.5])}):
        with pytest.raises(InvalidArgumentError, match=next(iter(wrong))):
            SamplingParams(**wrong)


def test_a_value_changed_later_is_checked_again() -> None:
    params = SamplingParams()
    params.temperature = -1
    with pytest.raises(InvalidArgumentError, match="temperature"):
        params.to_engine(vocab_size=VOCAB, eos_token_ids=[], tokenizer=None, max_new_tokens=5)


def test_values_reach_the_engine() -> None:
    got = engine_params(
        temperature=0.5, top_p=0.25, top_k=40, min_p=0.125, repetition_penalty=1.5, presence_penalty=-1.0,
        frequency_penalty=0.5, seed=7, max_tokens=20, min_tokens=3, logprobs=4, prompt_logprobs=0, stop=["a", "b"],
        stop_token_ids=[9, 5], logit_bias={3: -1.5}, allowed_token_ids=[3, 4], include_stop_str_in_output=True,
        skip_special_tokens=False,
    )  # fmt: skip
    want = {
        "temperature": 0.5, "top_p": 0.25, "top_k": 40, "min_p": 0.125, "repetition_penalty": 1.5,
        "presence_penalty": -1.0, "frequency_penalty": 0.5, "seed": 7, "max_tokens": 20, "min_tokens": 3, "logprobs": 4,
        "prompt_logprobs": 0, "stop": ["a", "b"], "stop_token_ids": [2, 5, 9], "logit_bias": [(3, -1.5)],
        "allowed_token_ids": [3, 4], "include_stop_str_in_output": True, "skip_special_tokens": False,
    }  # fmt: skip
    assert {name: getattr(got, name) for name in want} == want


def test_values_that_ask_for_nothing() -> None:
    got = engine_params(top_k=-1, n=1, best_of=1, stop=[], logit_bias={}, bad_words=[], max_tokens=None)
    assert (got.top_k, got.stop, got.logit_bias, got.bad_words, got.max_tokens) == (0, [], [], [], 1000)
    assert engine_params(top_k=10**9).top_k == VOCAB
    assert engine_params(max_tokens=5000).max_tokens == 1000
    assert engine_params(ignore_eos=True, stop_token_ids=[5]).stop_token_ids == [5]
    assert engine_params().logprobs == engine_params().prompt_logprobs == -1


def test_seeds() -> None:
    assert len({engine_params().seed for _ in range(20)}) == 20
    assert engine_params(seed=-1).seed == 2**64 - 1
    assert engine_params(seed=2**64 - 1).seed == 2**64 - 1


@pytest.mark.parametrize("name", ["stop_token_ids", "allowed_token_ids", "logit_bias"])
def test_ids_outside_the_vocabulary(name: str) -> None:
    value = {VOCAB: 1.0} if name == "logit_bias" else [VOCAB]
    with pytest.raises(InvalidArgumentError, match=r"49152.*out of vocabulary.*0 to 49151") as caught:
        engine_params(**{name: value})
    assert caught.value.param == name


def test_bad_words_at_the_start_and_after_a_space(tokenizer: Tokenizer) -> None:
    got = engine_params(tokenizer, bad_words=["Paris", " blue"]).bad_words
    want = [tokenizer.encode(text) for text in ("Paris", " Paris", "blue", " blue")]
    assert got == want
    with pytest.raises(InvalidArgumentError, match="need a tokenizer"):
        engine_params(None, bad_words=["x"])


def test_stop_strings_need_text() -> None:
    with pytest.raises(InvalidArgumentError, match="detokenize"):
        SamplingParams(stop="x", detokenize=False)


def test_clone_is_independent() -> None:
    params = SamplingParams(temperature=0.5, output_kind=RequestOutputKind.DELTA)
    copy = params.clone()
    assert copy == params
    copy.temperature = 0.75
    assert params.temperature == 0.5
