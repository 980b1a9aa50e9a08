"""Greedy answers have the tokens of the whole head, which log-probabilities and `screen_head=False` ask for."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from octavo import LLM, SamplingParams


@pytest.fixture(scope="module")
def whole(smollm2: Path) -> Iterator[LLM]:
    with LLM(model=str(smollm2), max_model_len=512, screen_head=False) as llm:
        yield llm


def tokens(llm: LLM, prompts: list[Any], params: SamplingParams) -> list[list[int]]:
    return [list(o.outputs[0].token_ids) for o in llm.generate(prompts, params, use_tqdm=False)]


def prompts(seed: int, count: int, vocab: int) -> list[Any]:
    rng = np.random.default_rng(seed)
    return [{"prompt_token_ids": rng.integers(100, vocab, 24).tolist()} for _ in range(count)]


@pytest.mark.parametrize("count", [1, 3, 5])
def test_greedy_tokens_are_those_of_the_whole_head(llm: LLM, whole: LLM, count: int) -> None:
    texts: list[Any] = [
        "The history of the steam engine begins",
        "def quicksort(a):\n",
        "Once upon a time",
        "1, 2, 3,",
    ]
    asked = texts[:count] + prompts(count, count, 49000)
    params = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True)
    scored = SamplingParams(temperature=0, max_tokens=32, ignore_eos=True, logprobs=0)
    for i in range(0, len(asked), count):
        expected = tokens(whole, asked[i : i + count], params)
        assert tokens(llm, asked[i : i + count], params) == expected
        assert tokens(llm, asked[i : i + count], scored) == expected


@pytest.mark.parametrize(
    "options",
    [
        {"repetition_penalty": 1.3},
        {"presence_penalty": 2.0, "frequency_penalty": 1.0},
        {"logit_bias": {260: 30.0, 3: -100.0}},
        {"allowed_token_ids": [11, 1207, 28, 30000, 49000]},
        {"bad_words": [" the", "."]},
        {"min_tokens": 20},
        {"top_k": 1, "temperature": 0.8},
        {"top_p": 0.0, "temperature": 0.8},
        {"temperature": 0.8, "seed": 7},
        {"temperature": 0.7, "top_k": 20, "top_p": 0.9, "seed": 7},
        {"prompt_logprobs": 0},
        {"n": 2, "seed": 1, "temperature": 1.0},
    ],
    ids=lambda o: "+".join(o),
)
def test_whatever_else_looks_at_logits_sees_all_of_them(
    llm: LLM, whole: LLM, options: dict[str, Any]
) -> None:
    params = SamplingParams(**{"temperature": 0, "max_tokens": 24, **options})
    asked: list[Any] = ["The sky is", *prompts(1, 1, 49000)]
    assert tokens(llm, asked, params) == tokens(whole, asked, params)


def test_a_greedy_request_beside_one_that_samples(llm: LLM, whole: LLM) -> None:
    params = [
        SamplingParams(temperature=0, max_tokens=40),
        SamplingParams(temperature=1, seed=3, max_tokens=20),
        SamplingParams(temperature=0, max_tokens=30, logprobs=2),
    ]
    answers = []
    for engine in (llm, whole):
        outputs = engine.generate(["The sky is"] * 3, params, use_tqdm=False)
        answers.append([list(o.outputs[0].token_ids) for o in outputs])
    assert answers[0] == answers[1]


def test_the_copy_is_counted_and_can_be_left_out(llm: LLM, whole: LLM) -> None:
    copy = llm.model.engine.info()["weight_bytes"] - whole.model.engine.info()["weight_bytes"]
    head = 49152 * 576
    assert 0.55 * head < copy < 0.65 * head
