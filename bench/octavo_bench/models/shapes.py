"""The shapes of random models and their tensors."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """A Llama-like decoder with a tied head."""

    hidden: int
    layers: int
    heads: int
    kv_heads: int
    intermediate: int
    vocab: int
    positions: int = 8192
    rope_theta: float = 10000.0
    norm_eps: float = 1e-5

    @property
    def head_dim(self) -> int:
        return self.hidden // self.heads


SHAPES = {
    "1b": LlamaShape(hidden=2048, layers=16, heads=32, kv_heads=8, intermediate=8192, vocab=32000),
    "tiny": LlamaShape(hidden=64, layers=2, heads=4, kv_heads=2, intermediate=128, vocab=512, positions=512),
}

Array = np.ndarray[Any, np.dtype[np.float32]]


def tensors(shape: LlamaShape, seed: int = 0) -> Iterator[tuple[str, Array]]:
    """Every tensor under its Hugging Face name, one at a time: normal weights of spread 0.02, norms of 1."""
    rng = np.random.default_rng(seed)

    def matrix(rows: int, columns: int) -> Array:
        values = rng.standard_normal((rows, columns), dtype=np.float32)
        values *= np.float32(0.02)
        return values

    ones = np.ones(shape.hidden, np.float32)
    kv = shape.kv_heads * shape.head_dim
    yield "model.embed_tokens.weight", matrix(shape.vocab, shape.hidden)
    for layer in range(shape.layers):
        at = f"model.layers.{layer}."
        yield at + "input_layernorm.weight", ones
        yield at + "self_attn.q_proj.weight", matrix(shape.hidden, shape.hidden)
        yield at + "self_attn.k_proj.weight", matrix(kv, shape.hidden)
        yield at + "self_attn.v_proj.weight", matrix(kv, shape.hidden)
        yield at + "self_attn.o_proj.weight", matrix(shape.hidden, shape.hidden)
        yield at + "post_attention_layernorm.weight", ones
        yield at + "mlp.gate_proj.weight", matrix(shape.intermediate, shape.hidden)
        yield at + "mlp.up_proj.weight", matrix(shape.intermediate, shape.hidden)
        yield at + "mlp.down_proj.weight", matrix(shape.hidden, shape.intermediate)
    yield "model.norm.weight", ones
