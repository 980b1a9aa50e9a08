"""Every family against transformers in float32: logits, greedy tokens, and the same bits however a prompt is cut."""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import family_models
import numpy as np
import pytest
import torch
from family_models import CASES, VOCAB
from transformers import Gemma3Config, Gemma3ForConditionalGeneration

from octavo import _engine
from octavo.models.checkpoint import open_checkpoint

GENERATED = 8


@dataclass
class Reference:
    """What transformers makes of a model: its folder, its GGUF, the logits of a prompt and how it goes on."""

    folder: Path
    gguf: Path | None
    ids: list[int]
    logits: np.ndarray


@pytest.fixture(scope="module", autouse=True)
def one_thread() -> Iterator[None]:
    """For models so small, torch's threads cost more than they bring."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


@pytest.fixture(scope="module")
def reference(tmp_path_factory: pytest.TempPathFactory) -> Any:
    @cache
    def build(name: str) -> Reference:
        case = CASES[name]
        folder = tmp_path_factory.mktemp("family")
        model = family_models.make(case)
        model.save_pretrained(folder)
        path = None
        if case.arch is not None:
            path = folder / "model.gguf"
            family_models.save_gguf(case, model, path)
        ids = np.random.default_rng(7).integers(3, VOCAB, case.max_len - GENERATED).tolist()
        for _ in range(GENERATED):
            logits = family_models.reference_logits(model, ids)
            ids.append(int(logits[-1].argmax()))
        return Reference(folder, path, ids, family_models.reference_logits(model, ids))

    return build


def runner(path: Path, max_len: int, **options: Any) -> _engine.ModelRunner:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint = open_checkpoint(path)
    return _engine.ModelRunner(checkpoint.config, checkpoint.weights, max_positions=max_len, **options)


FILES = [(name, "safetensors") for name in CASES]
FILES += [(name, "gguf") for name, case in CASES.items() if case.arch is not None]


@pytest.mark.parametrize(("name", "container"), FILES)
def test_logits_and_greedy_tokens_equal_the_reference(reference: Any, name: str, container: str) -> None:
    want = reference(name)
    made = runner(want.gguf if container == "gguf" else want.folder, CASES[name].max_len)
    got = made.logits(want.ids)
    np.testing.assert_allclose(got, want.logits, atol=2e-4, rtol=0)
    assert np.abs(want.logits).max() > 0.5
    prompt = len(want.ids) - GENERATED
    greedy = want.logits[prompt - 1 : -1].argmax(-1).tolist()
    assert got[prompt - 1 : -1].argmax(-1).tolist() == greedy
    assert greedy == want.ids[prompt:] or "dynamic" in name  # its frequencies follow the length


def test_the_text_of_a_model_that_sees_images(tmp_path: Path) -> None:
    text = {"head_dim": 32, "num_hidden_layers": 2, "sliding_window": 24, "query_pre_attn_scalar": 32}
    vision = {"hidden_size": 32, "intermediate_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    torch.manual_seed(3)
    model = Gemma3ForConditionalGeneration(
        Gemma3Config(
            text_config=family_models.BASE | text,
            vision_config=vision | {"image_size": 28, "patch_size": 14},
            mm_tokens_per_image=4, boi_token_index=290, eoi_token_index=291, image_token_index=292,
        )
    ).eval()  # fmt: skip
    model.save_pretrained(tmp_path)
    config_json = tmp_path / "config.json"
    config = json.loads(config_json.read_text()) | {"eos_token_id": [1, 106]}
    for assumed in ("rope_parameters", "rms_norm_eps"):  # published ones leave out what transformers assumes
        del config["text_config"][assumed]
    config_json.write_text(json.dumps(config))
    (tmp_path / "generation_config.json").unlink()
    ids = np.random.default_rng(7).integers(3, 290, 100).tolist()
    want = family_models.reference_logits(model, ids)
    np.testing.assert_allclose(runner(tmp_path, 200).logits(ids), want, atol=2e-4, rtol=0)
    assert open_checkpoint(tmp_path).config.eos_token_ids == [1, 106]


@pytest.mark.parametrize("name", CASES)
def test_chunked_and_cached_runs_have_the_same_bits(reference: Any, name: str) -> None:
    want = reference(name)
    whole = runner(want.folder, CASES[name].max_len).logits(want.ids)
    made = runner(want.folder, CASES[name].max_len, threads=2, block_size=8)
    assert np.array_equal(made.logits(want.ids, chunk=37), whole)
    assert np.array_equal(made.logits(want.ids, start=100), whole[100:])
    assert np.array_equal(made.logits(want.ids, start=90, chunk=1), whole[90:])
