"""Model files made wrong on purpose are refused with an error of octavo's, quickly. `file_fuzzer.py` makes more."""

from __future__ import annotations

import json
import random
import shutil
import warnings
from pathlib import Path
from typing import Any

import pytest

from octavo.errors import ModelError, OctavoError
from octavo.models.checkpoint import open_checkpoint
from octavo.models.config import from_hugging_face

from .file_fuzzer import fuzz, fuzz_metadata, mutate, prepare, with_header


@pytest.mark.parametrize(
    ("count", "seed"), [(200, 1), pytest.param(700, 2, marks=pytest.mark.slow, id="many")]
)
def test_spoiled_folders(tiny_llama: Path, tmp_path: Path, count: int, seed: int) -> None:
    files = prepare(tiny_llama, tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fields of config.json that are not known
        outcome = fuzz(files, count, seed)
    assert outcome.problems == []
    assert outcome.verdicts["accepted"] > count // 20 and outcome.verdicts["corrupt_file"] > count // 3
    assert outcome.slowest < 5


@pytest.mark.parametrize(
    ("count", "seed"), [(300, 1), pytest.param(3000, 2, marks=pytest.mark.slow, id="many")]
)
def test_spoiled_metadata(count: int, seed: int) -> None:
    outcome = fuzz_metadata(count, seed)
    assert outcome.problems == []
    assert outcome.verdicts["accepted"] > count // 20 and outcome.verdicts["corrupt_file"] > count // 4
    assert outcome.slowest < 5


@pytest.mark.parametrize(
    ("change", "param"),
    [
        ({"partial_rotary_factor": 1e308}, "partial_rotary_factor"),
        ({"rope_scaling": {"rope_type": "yarn", "factor": 1e308}}, "factor"),
        ({"rope_scaling": {"rope_type": "dynamic", "factor": 1e30}}, "factor"),
        ({"rope_scaling": {"rope_type": "linear", "factor": float("nan")}}, "factor"),
    ],
)
def test_factors_beyond_all_measure(tiny_llama: Path, change: dict[str, Any], param: str) -> None:
    config = json.loads((tiny_llama / "config.json").read_text())
    with pytest.raises(ModelError) as caught:
        from_hugging_face({**config, **change}, None, source="config.json")
    assert (caught.value.code, caught.value.param) == ("corrupt_file", param)


@pytest.mark.slow
def test_spoiled_configurations_of_every_family() -> None:
    from transformers import AutoConfig
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as CLASSES

    kinds = "mistral qwen2 qwen3 gemma2 gemma3_text phi3 smollm3 granite olmo2 glm4 mixtral qwen3_moe gpt_oss olmoe"
    accepted = refused = 0
    for kind in kinds.split():
        plain = {**AutoConfig.for_model(kind).to_dict(), "architectures": [CLASSES[kind]]}
        good = json.loads(json.dumps(plain))
        for number in range(150):
            spoiled = mutate(good, random.Random(f"{kind} {number}"))
            if not isinstance(spoiled, dict):  # refused where the file is read
                continue
            try:
                from_hugging_face(spoiled, None, source=kind)
                accepted += 1
            except OctavoError as error:
                assert str(error)
                refused += 1
    assert min(accepted, refused) > 300


@pytest.mark.parametrize("name", ["\ud800", "y" * 300, "a\nb", "..", "", "a/b", 7])
def test_a_shard_that_is_no_file_name(tiny_llama: Path, tmp_path: Path, name: object) -> None:
    shutil.copytree(tiny_llama, tmp_path, dirs_exist_ok=True)
    index = {"weight_map": {"model.norm.weight": name}}
    (tmp_path / "model.safetensors.index.json").write_text(json.dumps(index))
    with pytest.raises(ModelError, match="is not a file name") as caught:
        open_checkpoint(tmp_path)
    assert caught.value.param == "model.norm.weight"


def test_a_shard_that_is_the_index_itself(tiny_llama: Path, tmp_path: Path) -> None:
    shutil.copytree(tiny_llama, tmp_path, dirs_exist_ok=True)
    index = '{"weight_map": {"model.norm.weight": "model.safetensors.index.json"}}'
    (tmp_path / "model.safetensors.index.json").write_text(index)
    with pytest.raises(ModelError, match="its header has"):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("record", "says"),
    [
        ({"\ud800": {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}}, "is not printable"),
        ({"a": {"dtype": "\ud800", "shape": [1], "data_offsets": [0, 4]}}, "has dtype"),
        ({"a": {"dtype": "U8", "shape": [2**62, 3, 0], "data_offsets": [0, 0]}}, "negative or too large"),
    ],
)
def test_records_that_cannot_be(tiny_llama: Path, tmp_path: Path, record: object, says: str) -> None:
    shutil.copytree(tiny_llama, tmp_path, dirs_exist_ok=True)
    (tmp_path / "model.safetensors").write_bytes(with_header(record, bytes(4)))
    with pytest.raises(ModelError, match=says):
        open_checkpoint(tmp_path)
