"""Mixtures of experts on the CUDA backend against numpy in float64, and the same bits whatever the company."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import pytest
from weight_blocks import activations, random_weight

from octavo import _engine
from octavo.errors import OctavoError

SLOW = [
    pytest.param(fmt, marks=pytest.mark.slow) for fmt in ("bf16", "f16", "f32", "q6_k", "mxfp4", "int4x128")
]
FORMATS = ["q4_k", *SLOW]
TOLERANCE = {"bf16": 0.02, "f32": 3e-6}  # of the largest output, by what tensor cores read; others 0.003


@dataclass
class Mixture:
    experts: list
    values: list[tuple[np.ndarray, np.ndarray]]
    biases: tuple[np.ndarray, np.ndarray]

    @classmethod
    def random(cls, ops: _engine.BackendOps, fmt: str, num_experts: int, dim: int, width: int) -> Mixture:
        rng = np.random.default_rng(0)
        experts, values = [], []
        for _ in range(num_experts):
            up, up_values = random_weight(rng, fmt, 2 * width, dim)
            down, down_values = random_weight(rng, fmt, dim, width)
            experts.append((_engine.pack(ops, [up]), _engine.pack(ops, [down])))
            values.append((up_values.astype(np.float64), down_values.astype(np.float64)))
        biases = tuple(rng.normal(0, 1, (num_experts, n)).astype(np.float32) for n in (2 * width, dim))
        return cls(experts, values, biases)

    def run(self, ops, logits, x, chosen: int, **options) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        columns = chosen + ("shared" in options)
        ids = np.full((len(x), chosen), -1, np.int32)
        weights, out = (np.full((len(x), width), np.nan, np.float32) for width in (columns, x.shape[1]))
        _engine.run_mixture(
            ops,
            self.experts,
            logits,
            x,
            ids,
            weights,
            out,
            gate="clamped_silu_mul",
            gate_up_bias=self.biases[0],
            down_bias=self.biases[1],
            **options,
        )
        return ids, weights, out

    def expert(self, e: int, x: np.ndarray) -> np.ndarray:
        gate, up = np.split(self.values[e][0] @ x + self.biases[0][e], 2)
        gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
        return self.values[e][1] @ (gate / (1 + np.exp(-1.702 * gate)) * (up + 1)) + self.biases[1][e]


def softmax(x: np.ndarray) -> np.ndarray:
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


@pytest.mark.parametrize("normalized", [False, True])
@pytest.mark.parametrize("num_experts, chosen", [(1, 1), (5, 2), (40, 8), (130, 32)])
def test_tokens_choose_the_largest_logits(emulated, num_experts: int, chosen: int, normalized: bool) -> None:
    rng = np.random.default_rng(1)
    mixture = Mixture.random(emulated, "bf16", 1, 32, 32)
    mixture.experts *= num_experts
    mixture.biases = tuple(np.repeat(b, num_experts, 0) for b in mixture.biases)
    logits = rng.normal(0, 2, (9, num_experts)).astype(np.float32)
    logits[3] = 1.0  # of equals the first
    logits[4, : num_experts // 2] = logits[4].max()
    ids, weights, _ = mixture.run(emulated, logits, activations(rng, 9, 32), chosen, normalized=normalized)
    expected = np.sort(np.argsort(-logits, 1, kind="stable")[:, :chosen], 1)
    np.testing.assert_array_equal(ids, expected)
    picked = np.take_along_axis(logits.astype(np.float64), expected, 1)
    wanted = (
        softmax(picked) if normalized else np.take_along_axis(softmax(logits.astype(np.float64)), expected, 1)
    )
    np.testing.assert_allclose(weights, wanted, rtol=3e-6)


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("num_tokens", [1, 6, 90])
def test_experts_outputs_are_added_up(emulated, fmt: str, num_tokens: int) -> None:
    """Few tokens leave experts without any; many fill more than one tile of an expert."""
    rng = np.random.default_rng(2)
    dim, width, chosen = 256, 256, 2
    mixture = Mixture.random(emulated, fmt, 5, dim, width)
    logits = rng.normal(0, 1, (num_tokens, 5)).astype(np.float32)
    logits[:, 3] -= 100.0  # nobody's
    logits[:, 1] += 3.0  # almost everybody's
    x = activations(rng, num_tokens, dim) * np.float32(0.05)
    shared, gate = activations(rng, num_tokens, dim), rng.normal(0, 1, num_tokens).astype(np.float32)
    ids, weights, out = mixture.run(emulated, logits, x, chosen, shared=shared, shared_gate=gate)
    np.testing.assert_allclose(weights[:, chosen], 1 / (1 + np.exp(-gate.astype(np.float64))), rtol=1e-6)
    outputs = np.stack(
        [[mixture.expert(e, x[t].astype(np.float64)) for e in ids[t]] for t in range(num_tokens)]
    )
    expected = (weights[:, :chosen, None] * outputs).sum(1) + weights[:, chosen:] * shared
    assert np.abs(out - expected).max() <= TOLERANCE.get(fmt, 0.003) * np.abs(outputs).max()


@pytest.mark.parametrize("fmt", ["q4_k", pytest.param("f32", marks=pytest.mark.slow)])
def test_a_tokens_bits_do_not_depend_on_the_others(emulated, fmt: str) -> None:
    rng = np.random.default_rng(3)
    mixture = Mixture.random(emulated, fmt, 4, 256, 256)
    logits = rng.normal(0, 1, (80, 4)).astype(np.float32)
    x = activations(rng, 80, 256)
    _, _, whole = mixture.run(emulated, logits, x, 2)
    for rows in (slice(0, 1), slice(17, 40), slice(79, 80)):
        _, _, part = mixture.run(emulated, logits[rows], x[rows], 2)
        np.testing.assert_array_equal(part.view(np.uint32), whole[rows].view(np.uint32))


def test_limits_are_named(emulated) -> None:
    mixture = Mixture.random(emulated, "bf16", 1, 32, 32)
    mixture.experts *= 40
    mixture.biases = tuple(np.repeat(b, 40, 0) for b in mixture.biases)
    with pytest.raises(OctavoError, match="num_experts_per_tok is 33, CUDA kernels go up to 32"):
        mixture.run(emulated, np.zeros((1, 40), np.float32), np.zeros((1, 32), np.float32), 33)
