"""gpt-oss with its experts in MXFP4, as its own folder and as a GGUF hold them."""

from __future__ import annotations

import json
import warnings
from pathlib import Path
from typing import Any

import family_models
import gguf
import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from octavo import _engine
from octavo.errors import ModelError
from octavo.models.checkpoint import open_checkpoint

MXFP4 = gguf.GGMLQuantizationType.MXFP4
CASE = family_models.CASES["gpt-oss"]


def blocks_and_scales(matrix: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """[experts, rows, k] as transformers stores it: neighbouring codes in one byte, scales apart."""
    raw = gguf.quants.quantize(matrix, MXFP4).reshape(*matrix.shape[:2], matrix.shape[2] // 32, 17)
    low, high = raw[..., 1:] & 15, raw[..., 1:] >> 4
    codes = np.concatenate([low, high], -1)
    return codes[..., ::2] | codes[..., 1::2] << 4, raw[..., 0]


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(the model with the experts' rounded values, its folder, its GGUF)"""
    folder = tmp_path_factory.mktemp("mxfp4")
    model = family_models.make(CASE)
    state, stored = model.state_dict(), {}
    with torch.no_grad():
        for name, tensor in state.items():
            if not name.endswith(("gate_up_proj", "down_proj")):
                continue
            rows = tensor.transpose(1, 2).contiguous().numpy()
            blocks, scales = blocks_and_scales(rows)
            stored[f"{name}_blocks"], stored[f"{name}_scales"] = (
                torch.from_numpy(blocks),
                torch.from_numpy(scales),
            )
            rounded = gguf.quants.dequantize(gguf.quants.quantize(rows, MXFP4), MXFP4)
            tensor.copy_(torch.from_numpy(rounded).transpose(1, 2))
    model.save_pretrained(folder)
    family_models.save_gguf(CASE, model, folder / "model.gguf", experts=MXFP4)
    tensors = load_file(folder / "model.safetensors")
    dense = {k: v for k, v in tensors.items() if not k.endswith(("gate_up_proj", "down_proj"))}
    save_file({k: v.contiguous() for k, v in (dense | stored).items()}, folder / "model.safetensors")
    config = json.loads((folder / "config.json").read_text())
    config["quantization_config"] = {"quant_method": "mxfp4", "modules_to_not_convert": ["lm_head"]}
    (folder / "config.json").write_text(json.dumps(config))
    return model, folder, folder / "model.gguf"


def runner(path: Path) -> _engine.ModelRunner:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        checkpoint = open_checkpoint(path)
    return _engine.ModelRunner(checkpoint.config, checkpoint.weights, max_positions=200)


def test_both_files_hold_the_reference_values(made: Any) -> None:
    model, folder, path = made
    want = family_models.stacked_experts(model.state_dict())
    of_folder, of_gguf = runner(folder), runner(path)
    for kind in ("gate_proj", "up_proj", "down_proj"):
        for expert in (0, 4):
            name = f"model.layers.1.mlp.experts.{expert}.{kind}.weight"
            values = want[f"model.layers.1.mlp.experts.{kind}.weight"][expert].numpy()
            np.testing.assert_array_equal(of_folder.dequantized(name), values)
            np.testing.assert_array_equal(of_gguf.dequantized(name), values)
    ids = np.random.default_rng(1).integers(3, 300, 150).tolist()
    got, reference = of_folder.logits(ids), family_models.reference_logits(model, ids)
    assert np.array_equal(of_gguf.logits(ids), got)
    # Activations are rounded to 8 bits before each product; where two experts are as good, a token may get the other.
    off = np.linalg.norm(got - reference, axis=-1) / np.linalg.norm(reference, axis=-1)
    assert np.median(off) < 0.03


def test_scales_that_do_not_fit_the_blocks_are_refused(made: Any, tmp_path: Path) -> None:
    _, folder, _ = made
    tensors = load_file(folder / "model.safetensors")
    name = "model.layers.2.mlp.experts.down_proj_scales"
    save_file(
        {k: v[:, :-1].contiguous() if k == name else v for k, v in tensors.items()},
        tmp_path / "model.safetensors",
    )
    (tmp_path / "config.json").write_text((folder / "config.json").read_text())
    with pytest.raises(
        ModelError, match=r"down_proj_scales has shape \[5, 63, 3\], .* \[5, 64, 3\] of single bytes"
    ):
        runner(tmp_path)


@pytest.mark.parametrize("name", ["gpt-oss", "qwen 2 moe"])
def test_float_experts_can_be_quantized_while_they_are_loaded_but_not_the_router(
    name: str, tmp_path: Path
) -> None:
    model = family_models.make(family_models.CASES[name])
    model.save_pretrained(tmp_path)
    checkpoint = open_checkpoint(tmp_path)
    whole = _engine.ModelRunner(checkpoint.config, checkpoint.weights, max_positions=200)
    quantized = checkpoint.quantized("q8")
    made = _engine.ModelRunner(quantized.config, quantized.weights, max_positions=200)
    assert made.packed_bytes < 0.45 * whole.packed_bytes
    for role in ("mlp.router", "mlp.gate"):
        router = f"model.layers.0.{role}.weight"
        if router in checkpoint.weights:
            np.testing.assert_array_equal(made.dequantized(router), model.state_dict()[router].numpy())
    expert = "model.layers.0.mlp.experts.1.up_proj.weight"
    exact, rounded = whole.dequantized(expert), made.dequantized(expert)
    assert 0 < np.abs(exact - rounded).max() < np.abs(exact).max() / 200
