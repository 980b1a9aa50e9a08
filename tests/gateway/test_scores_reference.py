"""Every logprob that the API tells equals transformers' in float32, cold and with a warm prefix cache."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from served import Served, octavo_serve

pytestmark = pytest.mark.slow

TOLERANCE = 1e-3
PROMPTS = (
    "The capital of France is",
    "def fibonacci(n):\n    if n < 2:\n        return n\n    return",
    "Zwölf Boxkämpfer jagen Viktor quer über den großen Sylter Deich. 🌍 世界 " * 3,
    "Once upon a time there was a queen who lived beside the sea and counted ships. " * 8,
)


@pytest.fixture(scope="module")
def float32(float32_folder: Path) -> Iterator[Served]:
    with octavo_serve(
        str(float32_folder),
        *(
            "--max-model-len",
            "1024",
            "--threads",
            "1",
            "--kv-cache-dtype",
            "f32",
            "--max-num-batched-tokens",
            "64",
        ),
    ) as server:
        yield server


@pytest.fixture(scope="module")
def reference(float32_folder: Path) -> Any:
    """Token ids to log-probabilities, [positions, vocabulary]: row i is about the token behind position i."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(float32_folder, dtype=torch.float32).eval()

    def scores(ids: list[int]) -> Any:
        with torch.no_grad():
            return torch.log_softmax(model(torch.tensor([ids])).logits[0].float(), -1)

    return scores


def check(entry: dict[str, Any], row: Any) -> None:
    """One position: every logprob, every rank, and that the best ones are the best."""
    for token, told in entry.items():
        true = float(row[int(token)])
        assert told["logprob"] == pytest.approx(true, abs=TOLERANCE)
        better = int((row > true + TOLERANCE).sum())
        assert better < told["rank"] <= int((row > true - TOLERANCE).sum())


@pytest.mark.parametrize("prompt", PROMPTS, ids=range(len(PROMPTS)))
def test_scores_equal_those_of_transformers(float32: Served, reference: Any, prompt: str) -> None:
    fields = {
        "prompt": prompt,
        "max_tokens": 8,
        "return_token_ids": True,
        "logprobs": 5,
        "prompt_logprobs": 5,
    }
    status, cold = float32.complete(**fields)
    assert status == 200, cold
    _, warm = float32.complete(**fields)
    (choice,) = cold["choices"]
    assert warm["choices"] == [choice]
    prompt_ids, ids = choice["prompt_token_ids"], choice["token_ids"]
    rows = reference([*prompt_ids, *ids])
    for entry, row in zip(choice["prompt_logprobs"][1:], rows, strict=False):
        assert len(entry) in (5, 6)
        check(entry, row)
    told = choice["logprobs"]
    for i, token in enumerate(ids):
        row = rows[len(prompt_ids) - 1 + i]
        assert told["token_logprobs"][i] == pytest.approx(float(row[token]), abs=TOLERANCE)
        best = sorted(told["top_logprobs"][i].values(), reverse=True)
        assert best == pytest.approx(row.topk(len(best)).values.tolist(), abs=TOLERANCE)


def test_chat_scores_equal_those_of_transformers(float32: Served, reference: Any) -> None:
    fields = {
        "logprobs": True,
        "top_logprobs": 20,
        "return_token_ids": True,
        "prompt_logprobs": 0,
        "max_tokens": 8,
    }
    _, cold = float32.chat(**fields)
    _, warm = float32.chat(**fields)
    assert cold["choices"] == warm["choices"] and cold["prompt_logprobs"] == warm["prompt_logprobs"]
    (choice,) = cold["choices"]
    prompt_ids, ids = cold["prompt_token_ids"], choice["token_ids"]
    rows = reference([*prompt_ids, *ids])
    for position, (entry, token) in enumerate(zip(cold["prompt_logprobs"][1:], prompt_ids[1:], strict=True)):
        assert set(entry) == {str(token)}
        check(entry, rows[position])
    for i, entry in enumerate(choice["logprobs"]["content"]):
        row = rows[len(prompt_ids) - 1 + i]
        assert entry["logprob"] == pytest.approx(float(row[ids[i]]), abs=TOLERANCE)
        top = [e["logprob"] for e in entry["top_logprobs"]]
        assert top == pytest.approx(row.topk(20).values.tolist(), abs=TOLERANCE)
