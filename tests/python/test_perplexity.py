"""`octavo eval perplexity` equals transformers on the same windows."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.cli import main
from octavo.errors import InvalidArgumentError
from octavo.evaluation.perplexity import estimate, sample_text, windows


@settings(max_examples=300, deadline=None)
@given(data=st.data(), count=st.integers(0, 60), before=st.integers(0, 2), window=st.integers(3, 20))
def test_windows_score_every_token_once(data: st.DataObject, count: int, before: int, window: int) -> None:
    room = window - before
    stride = data.draw(st.integers(1, room))
    cuts = list(windows(range(100, 100 + count), [7] * before, window, stride))
    scored = [token for cut in cuts for token in cut.ids[cut.first :]]
    if before:
        assert scored == list(range(100, 100 + count))
    elif stride < room:
        assert scored == list(range(101, 100 + count))
    for number, cut in enumerate(cuts):
        assert len(cut.ids) <= window and cut.ids[:before] == [7] * before and cut.first >= 1
        if number:
            assert cut.first >= before + room - stride


def test_the_estimate() -> None:
    found = estimate([1.0, 2.0, 3.0])
    assert found.mean == 2.0 and found.value == pytest.approx(math.e**2)
    assert found.mean_error == pytest.approx(1 / math.sqrt(3))
    assert found.error == pytest.approx(math.e**2 / math.sqrt(3))
    assert estimate([1.0]).error == math.inf and estimate([1e9]).value == math.inf


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> dict[str, Any]:
    assert main(["eval", "perplexity", *arguments, "--json"]) == 0
    report: dict[str, Any] = json.loads(capsys.readouterr().out)
    return report


def reference(folder: Path, ids: list[int], window: int, stride: int) -> list[float]:
    """Each token's loss by transformers, in the way of its own guide to perplexity."""
    import torch
    from transformers import AutoModelForCausalLM

    model = AutoModelForCausalLM.from_pretrained(folder, dtype=torch.float32)
    losses, end = [], 0
    for start in range(0, len(ids), stride):
        stop = min(start + window, len(ids))
        with torch.no_grad():
            scores = torch.log_softmax(model(torch.tensor([ids[start:stop]])).logits[0].double(), -1)
        losses += [-scores[i - start - 1, ids[i]].item() for i in range(max(end, start + 1), stop)]
        end = stop
        if end == len(ids):
            break
    return losses


def assert_equal(report: dict[str, Any], want: list[float], within: float) -> None:
    expected = estimate(want)
    assert report["scored"] == len(want)
    assert report["perplexity"] == pytest.approx(expected.value, rel=within)
    assert report["standard_error"] == pytest.approx(expected.error, rel=within * 10)


def token_ids(folder: Path, text: str, count: int) -> list[int]:
    from octavo.tokenizer import from_folder

    return from_folder(folder).encode(text, add_special_tokens=False)[:count]


@pytest.mark.slow
def test_a_small_model_against_transformers(tiny_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--max-tokens", "300", "--window", "64", "--stride", "24", "--kv-cache-dtype", "f32"]
    report = run(capsys, str(tiny_folder), *flags, "--compare", str(tiny_folder))
    ids = token_ids(tiny_folder, sample_text(), 300)
    assert_equal(report, reference(tiny_folder, ids, 64, 24), 1e-4)
    assert (report["tokens"], report["window"], report["stride"]) == (300, 64, 24)
    assert report["kv_cache_dtype"] == "f32" and report["compare"]["kv_cache_dtype"] == "f16"
    assert report["compare"]["ratio"]["value"] == pytest.approx(1, abs=2e-3)
    assert 0 < report["compare"]["ratio"]["standard_error"] < 1e-3


@pytest.mark.slow
def test_several_texts_in_words(
    tiny_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in "ab":
        (tmp_path / name).write_text(sample_text()[:400])
    files = [flag for name in "ab" for flag in ("--text", str(tmp_path / name))]
    one = run(capsys, str(tiny_folder), *files[:2])
    both = run(capsys, str(tiny_folder), *files)
    assert both["scored"] == 2 * one["scored"] and both["perplexity"] == pytest.approx(one["perplexity"])
    assert main(["eval", "perplexity", str(tiny_folder), *files]) == 0
    assert f"{both['perplexity']:.4f} ± {both['standard_error']:.4f}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "says"),
    [
        (["--text", "/no/such.txt"], "--text '/no/such.txt' cannot be read: No such file"),
        (["--window", "5000"], "--window must be an integer from 2 to 2047, got 5000"),
        (["--window", "64", "--stride", "65"], "--stride must be an integer from 1 to 64, got 65"),
        (["--max-tokens", "1"], "at least two tokens"),
    ],
)
def test_what_cannot_be_measured(
    tiny_folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], says: str
) -> None:
    assert main(["eval", "perplexity", str(tiny_folder), *flags]) == 2
    assert says in capsys.readouterr().err


def test_a_stride_without_room() -> None:
    with pytest.raises(InvalidArgumentError, match="stride"):
        list(windows([1, 2, 3], [], 4, 0))


@pytest.mark.slow
def test_the_default_model_against_its_float32_weights(
    float32_folder: Path, smollm2: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = run(capsys, str(smollm2), "--max-tokens", "400", "--window", "256", "--stride", "128")
    ids = token_ids(float32_folder, sample_text(), 400)
    assert_equal(report, reference(float32_folder, ids, 256, 128), 0.005)
