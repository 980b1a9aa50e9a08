"""Dense weights quantized while they are packed: the blocks that the gguf package makes of the same floats."""

import gguf
import numpy as np
import pytest
import torch

from octavo import _engine
from octavo.errors import OctavoError

TYPES = {"q8_0": gguf.GGMLQuantizationType.Q8_0, "q4_1": gguf.GGMLQuantizationType.Q4_1}
DENSE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@pytest.mark.parametrize("isa", ["baseline", "avx2"])
@pytest.mark.parametrize("dense", DENSE)
@pytest.mark.parametrize("fmt", TYPES)
def test_blocks_are_those_of_the_gguf_package(isa: str, dense: str, fmt: str) -> None:
    try:
        ops = _engine.BackendOps(2, isa)
    except OctavoError:
        pytest.skip(f"this machine has no {isa}")
    torch.manual_seed(0)
    weight = torch.randn(301, 192)
    weight[3] = 0
    weight[4] = 0.25  # no spread
    weight[5, :64] = torch.arange(-32, 32) / 127 * 31.75  # codes on the edge between two
    weight[6] *= 1e-4
    weight = weight.to(DENSE[dense])
    order = np.random.default_rng(0).permutation(301).tolist()
    packed = _engine.pack(ops, [(weight, "", order), (weight[:7], "", [])], pack_as=fmt)
    floats = torch.cat([weight[order], weight[:7]]).float().numpy()
    expected = gguf.quants.dequantize(gguf.quants.quantize(floats, TYPES[fmt]), TYPES[fmt])
    np.testing.assert_array_equal(packed.dequantize(), expected)
    assert packed.format == fmt


def test_what_cannot_be_quantized_is_named() -> None:
    ops = _engine.BackendOps(1, "")
    with pytest.raises(OctavoError, match="48 columns; to quantize it a multiple of 32"):
        _engine.pack(ops, [(np.zeros((8, 48), np.float32), "", [])], pack_as="q8_0")
    with pytest.raises(OctavoError, match="is q4_0 and cannot be quantized to q8_0"):
        _engine.pack(ops, [(np.zeros((8, 18), np.uint8), "q4_0", [])], pack_as="q8_0")
    with pytest.raises(OctavoError, match="is f32 and cannot be quantized to q6_k"):
        _engine.pack(ops, [(np.zeros((8, 256), np.float32), "", [])], pack_as="q6_k")
