"""GPTQ, AWQ, compressed-tensors and fp8 folders: packed weights equal the formats' formulas, computed by torch."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from tiny_models import random_ids, reference_logits, save, tiny_llama

from octavo import _engine
from octavo.errors import ModelError
from octavo.models.checkpoint import open_checkpoint

AWQ_ORDER = [0, 2, 4, 6, 1, 3, 5, 7]


def pack(values: torch.Tensor, bits: int, dim: int, order=None) -> torch.Tensor:
    """Unsigned codes to int32 words along ``dim``; nibble i of a word is its column ``order[i]``."""
    per_word = 32 // bits
    v = values.movedim(dim, -1).to(torch.int64)
    v = v.reshape(*v.shape[:-1], v.shape[-1] // per_word, per_word)
    v = v[..., order or list(range(per_word))]
    words = sum(v[..., i] << (bits * i) for i in range(per_word))
    words = torch.where(words >= 2**31, words - 2**32, words)
    return words.to(torch.int32).movedim(-1, dim).contiguous()


def grouped(values: torch.Tensor, group: int, bits: int, symmetric: bool):
    """Codes [n, k], scales and zero points [n, k / group] of a plain rounding; how good it is does not matter."""
    n, k = values.shape
    v = values.reshape(n, k // group, group)
    low, high, limit = v.amin(-1), v.amax(-1), 2**bits - 1
    if symmetric:
        scale, zero = v.abs().amax(-1) * 2 / limit, torch.full(low.shape, 2.0 ** (bits - 1))
    else:
        scale = (high - low) / limit
        zero = torch.round(-low / scale).clamp(1, limit)
    codes = (torch.round(v / scale[..., None]) + zero[..., None]).clamp(0, limit)
    return codes.reshape(n, k), scale, zero


def gptq(w, group, bits=4, act_order=False, v2=False):
    k = w.shape[1]
    order = torch.arange(k)
    if act_order:
        order = torch.randperm(k, generator=torch.Generator().manual_seed(k))
    codes, scale, zero = grouped(w[:, order], group, bits, symmetric=bits == 8)
    scale = scale.half()
    g_idx = torch.empty(k, dtype=torch.int32)
    g_idx[order] = (torch.arange(k) // group).to(torch.int32)
    in_file = torch.empty_like(codes)
    in_file[:, order] = codes
    tensors = {
        "qweight": pack(in_file.T, bits, 0),
        "qzeros": pack((zero if v2 else zero - 1).T, bits, 1),
        "scales": scale.T.contiguous(),
        "g_idx": g_idx,
    }
    return tensors, scale.float()[:, g_idx.long()] * (in_file - zero[:, g_idx.long()])


def awq(w, group):
    codes, scale, zero = grouped(w, group, 4, symmetric=False)
    scale = scale.half()
    tensors = {
        "qweight": pack(codes.T, 4, 1, AWQ_ORDER),
        "qzeros": pack(zero.T, 4, 1, AWQ_ORDER),
        "scales": scale.T.contiguous(),
    }
    expand = lambda v: v.float().repeat_interleave(group, 1)  # noqa: E731
    return tensors, expand(scale) * (codes - expand(zero))


def packed(w, group, bits=4, symmetric=True):
    group = group or w.shape[1]
    codes, scale, zero = grouped(w, group, bits, symmetric)
    scale = scale.bfloat16()
    tensors = {
        "weight_packed": pack(codes, bits, 1),
        "weight_scale": scale,
        "weight_shape": torch.tensor(w.shape),
    }
    if not symmetric:
        tensors["weight_zero_point"] = pack(zero, bits, 0)
    expand = lambda v: v.float().repeat_interleave(group, 1)  # noqa: E731
    return tensors, expand(scale) * (codes - expand(zero))


def int8(w, per_channel=True):
    scale = w.abs().amax(1, keepdim=True) / 127 if per_channel else w.abs().amax().reshape(1) / 127
    codes = torch.round(w / scale).to(torch.int8)
    return {"weight": codes, "weight_scale": scale}, codes.float() * scale


def fp8(w, kind):
    if kind == "tensor":
        scale = (w.abs().amax() / 448).reshape(())
        codes = (w / scale).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale": scale, "input_scale": torch.ones(1)}, codes.float() * scale
    if kind == "channel":
        scale = w.abs().amax(1, keepdim=True) / 448
        codes = (w / scale).to(torch.float8_e4m3fn)
        return {"weight": codes, "weight_scale": scale}, codes.float() * scale
    n, k = w.shape
    scale = torch.rand(-(-n // 128), -(-k // 128)) * 0.001 + 0.0005
    wide = scale.repeat_interleave(128, 0).repeat_interleave(128, 1)[:n, :k]
    codes = (w / wide).to(torch.float8_e4m3fn)
    return {"weight": codes, "weight_scale_inv": scale}, codes.float() * wide


def compressed(form, bits=4, kind="int", **weights):
    group = {"weights": {"num_bits": bits, "type": kind, **weights}, "targets": ["Linear"]}
    return {"quant_method": "compressed-tensors", "format": form, "config_groups": {"group_0": group}}


CASES = {
    "gptq": ({"quant_method": "gptq", "bits": 4}, lambda w: gptq(w, 32)),
    "gptq wide": ({"quant_method": "gptq", "bits": 4}, lambda w: gptq(w, 128)),
    "gptq act order": ({"quant_method": "gptq", "bits": 4, "desc_act": True}, lambda w: gptq(w, 32, act_order=True)),
    "gptq v2": ({"quant_method": "gptq", "bits": 4, "checkpoint_format": "gptq_v2"}, lambda w: gptq(w, 64, v2=True)),
    "gptq 8 bits": ({"quant_method": "gptq", "bits": 8}, lambda w: gptq(w, 128, bits=8, act_order=True)),
    "awq": ({"quant_method": "awq", "bits": 4, "version": "gemm"}, lambda w: awq(w, 64)),
    "int4 symmetric": (compressed("pack-quantized"), lambda w: packed(w, 128)),
    "int4 asymmetric": (compressed("pack-quantized"), lambda w: packed(w, 32, symmetric=False)),
    "int4 by channel": (compressed("pack-quantized"), lambda w: packed(w, None)),
    "int8 packed": (compressed("pack-quantized", 8), lambda w: packed(w, 64, bits=8)),
    "int8 by channel": (compressed("int-quantized", 8), int8),
    "int8 by tensor": (compressed("int-quantized", 8), lambda w: int8(w, per_channel=False)),
    "fp8 by channel": (compressed("float-quantized", 8, "float"), lambda w: fp8(w, "channel")),
    "fp8": ({"quant_method": "fp8"}, lambda w: fp8(w, "tensor")),
    "fp8 blocks": ({"quant_method": "fp8", "weight_block_size": [128, 128]}, lambda w: fp8(w, "block")),
}  # fmt: skip
# Activations have 8 bits beside 4-bit weights, 16 beside 8-bit ones, and are floats beside e4m3.
TOLERANCE = {"gptq 8 bits": 1e-3, "int8 packed": 1e-3} | {
    n: 1e-3 for n in CASES if n.startswith(("int8", "fp8"))
}


def quantized_folder(folder, config, quantize):
    """A folder with quantized projections, and the model with the weights that they stand for."""
    model = tiny_llama(hidden_size=128, intermediate_size=256, num_attention_heads=4, num_hidden_layers=2)
    save(model, folder)
    tensors = load_file(folder / "model.safetensors")
    state = model.state_dict()
    for name in [n for n in tensors if n.endswith("_proj.weight")]:
        parts, values = quantize(tensors.pop(name))
        tensors |= {f"{name.removesuffix('weight')}{part}": tensor for part, tensor in parts.items()}
        state[name].copy_(values)
    save_file(tensors, folder / "model.safetensors")
    described = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(described | {"quantization_config": config}))
    return model


def runner(folder, isa=""):
    checkpoint = open_checkpoint(folder)
    return _engine.ModelRunner(checkpoint.config, checkpoint.weights, max_positions=512, isa=isa)


@pytest.mark.parametrize("case", CASES)
def test_weights_and_logits_are_those_of_the_formula(tmp_path, case):
    config, quantize = CASES[case]
    model = quantized_folder(tmp_path, config, quantize)
    run = runner(tmp_path)
    state = model.state_dict()
    for name in state:
        if name.endswith("_proj.weight"):
            np.testing.assert_array_equal(run.dequantized(name), state[name].numpy())
    ids = random_ids(30)
    want = reference_logits(model, ids)
    limit = TOLERANCE.get(case, 0.1) * np.abs(want).max()
    got = run.logits(ids)
    assert np.abs(got - want).max() < limit
    np.testing.assert_array_equal(runner(tmp_path).logits(ids, chunk=1), got)
    baseline = runner(tmp_path, isa="baseline").logits(ids)
    assert np.abs(baseline - want).max() < limit


@pytest.mark.parametrize(
    ("config", "match"),
    [
        ({"quant_method": "bitsandbytes"}, "quant_method is 'bitsandbytes'; gptq or awq"),
        ({"quant_method": "gptq", "bits": 3}, "bits is 3; 4 or 8"),
        ({"quant_method": "awq", "bits": 4, "version": "gemv"}, "version is 'gemv'; gemm"),
        ({"quant_method": "fp8", "weight_block_size": 128}, r"weight_block_size is 128; \[rows, columns\]"),
        (compressed("marlin-24"), "format is 'marlin-24'"),
        (compressed("pack-quantized", 2), "int of 2 bits"),
    ],
)
def test_what_cannot_be_read_is_named(tmp_path, config, match):
    quantized_folder(tmp_path, config, lambda w: gptq(w, 32))
    with pytest.raises(ModelError, match=match):
        open_checkpoint(tmp_path)


@pytest.mark.parametrize(
    ("damage", "match"),
    [
        (lambda t: t["model.layers.0.mlp.up_proj.qzeros"].resize_(3, 32), "qzeros has shape"),
        (lambda t: t.pop("model.layers.0.mlp.up_proj.qzeros"), "qzeros is missing"),
        (lambda t: t["model.layers.0.mlp.up_proj.g_idx"].fill_(9), "g_idx has group 9 of 4"),
        (lambda t: t["model.layers.0.mlp.up_proj.g_idx"][:32].fill_(1), "g_idx has a group of 0 columns"),
        (lambda t: t["model.layers.0.mlp.up_proj.g_idx"].copy_(torch.arange(128).flip(0) // 32), "another order than"),
        (lambda t: t.pop("model.layers.0.mlp.up_proj.qweight"), "no tensor model.layers.0.mlp.up_proj.weight"),
    ],
)  # fmt: skip
def test_damaged_parts_are_named(tmp_path, damage, match):
    quantized_folder(tmp_path, {"quant_method": "gptq", "bits": 4}, lambda w: gptq(w, 32))
    tensors = load_file(tmp_path / "model.safetensors")
    damage(tensors)
    save_file(tensors, tmp_path / "model.safetensors")
    with pytest.raises(ModelError, match=match):
        runner(tmp_path)
