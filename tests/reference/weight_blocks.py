"""Random matrices of every weight format, and the values that they stand for by the format's own definition."""

from __future__ import annotations

import gguf
import numpy as np
import torch

GGUF_NAMES = ["q4_0", "q4_1", "q5_0", "q5_1", "q8_0", "iq4_nl", "mxfp4"]
GGUF_NAMES += ["q2_k", "q3_k", "q4_k", "q5_k", "q6_k", "iq4_xs"]
GGUF = {name: getattr(gguf.GGMLQuantizationType, name.upper()) for name in GGUF_NAMES}
# Bytes of a block that are float16 scales.
HALVES = dict.fromkeys(GGUF, (0,)) | {
    "q4_1": (0, 2),
    "q5_1": (0, 2),
    "q2_k": (80, 82),
    "q3_k": (108,),
    "q4_k": (0, 2),
    "q5_k": (0, 2),
    "q6_k": (208,),
    "mxfp4": (),
}
SCALED = ("int4x32", "int4x128", "int8x32", "int8x128", "f8x32", "f8x128")
DENSE = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}
FORMATS = (*DENSE, *GGUF, *SCALED)


def block_of(fmt: str) -> int:
    """Weights per block."""
    if fmt in GGUF:
        return gguf.GGML_QUANT_SIZES[GGUF[fmt]][0]
    return int(fmt.split("x")[1]) if fmt in SCALED else 1


def gguf_blocks(rng: np.random.Generator, fmt: str, n: int, blocks: int) -> np.ndarray:
    """Every code is possible; float16 scales are small and finite."""
    raw = rng.integers(0, 256, (n, blocks, gguf.GGML_QUANT_SIZES[GGUF[fmt]][1]), dtype=np.uint8)
    for at in HALVES[fmt]:
        scales = rng.normal(0, 0.02, (n, blocks, 1)).astype(np.float16)
        raw[:, :, at : at + 2] = scales.view(np.uint8)
    if fmt == "mxfp4":
        raw[:, :, 0] = rng.integers(118, 124, (n, blocks))
    return raw.reshape(n, -1)


def scaled_blocks(rng: np.random.Generator, fmt: str, n: int, blocks: int) -> tuple[np.ndarray, np.ndarray]:
    """An f32 scale, for int4 a zero point, codes; and scale * (code - zero), scale * code or scale * e4m3 value."""
    size = block_of(fmt)
    scale = rng.normal(0, 0.02, (n, blocks, 1)).astype(np.float32)
    parts = [scale.view(np.uint8)]
    if fmt.startswith("int4"):
        zero = rng.integers(0, 256, (n, blocks, 1), dtype=np.uint8)
        codes = rng.integers(0, 16, (n, blocks, size), dtype=np.uint8)
        halves = codes.reshape(n, blocks, -1, 2, 16)
        parts += [zero, (halves[:, :, :, 0] | halves[:, :, :, 1] << 4).reshape(n, blocks, -1)]
        values = scale * (codes.astype(np.float32) - zero.astype(np.float32))
    else:
        codes = rng.integers(0, 256, (n, blocks, size), dtype=np.uint8)
        if fmt.startswith("int8"):
            floats = codes.view(np.int8).astype(np.float32)
        else:
            codes[codes & 0x7F == 0x7F] = 3  # NaN
            floats = torch.from_numpy(codes).view(torch.float8_e4m3fn).float().numpy()
        parts.append(codes)
        values = scale * floats
    return np.concatenate(parts, 2).reshape(n, -1), values.reshape(n, -1)


def random_weight(rng: np.random.Generator, fmt: str, n: int, k: int) -> tuple[tuple, np.ndarray]:
    """A part for pack(), of the next width that the format can have, and its values in float32."""
    if fmt in DENSE:
        tensor = torch.from_numpy(rng.normal(0, 0.05, (n, k)).astype(np.float32)).to(DENSE[fmt])
        return (tensor, "", []), tensor.float().numpy()
    blocks = -(-k // block_of(fmt))
    if fmt in SCALED:
        raw, values = scaled_blocks(rng, fmt, n, blocks)
        return (raw, fmt, []), values
    raw = gguf_blocks(rng, fmt, n, blocks)
    return (raw, fmt, []), gguf.quants.dequantize(raw, GGUF[fmt])


def activations(rng: np.random.Generator, m: int, k: int) -> np.ndarray:
    """Like those of real models: a few values are far larger than the others."""
    x = rng.normal(0, 1, (m, k))
    return np.where(rng.random((m, k)) < 0.01, 40 * x, x).astype(np.float32)
