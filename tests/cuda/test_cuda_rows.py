"""Residuals, logits and gathers on the CUDA backend against torch."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from octavo import _engine

RELATIVE = 2e-6  # float32, of the largest value


def random(*shape: int, seed: int = 0) -> torch.Tensor:
    return 3 * torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def assert_close(actual: torch.Tensor, expected: torch.Tensor) -> None:
    assert (actual.double() - expected).abs().max() <= RELATIVE * expected.abs().max()


def rms_norm(x: torch.Tensor, weight: torch.Tensor, eps: float) -> torch.Tensor:
    return torch.nn.functional.rms_norm(x.double(), x.shape[-1:], weight.double(), eps)


@pytest.mark.parametrize("normed", [False, True])
@pytest.mark.parametrize("dim", [1, 33, 700])
def test_residual_add(emulated, dim: int, normed: bool) -> None:
    x, y, weight = random(3, dim), random(3, dim, seed=1), random(dim, seed=2)
    expected = x.double() + 0.7 * (rms_norm(y, weight, 1e-6) if normed else y.double())
    _engine.residual_add(
        emulated, x.numpy(), y.numpy(), norm_weight=weight.numpy() if normed else None, eps=1e-6, scale=0.7
    )
    assert_close(x, expected)


@pytest.mark.parametrize("softcap", [0.0, 30.0])
def test_scale_logits(emulated, softcap: float) -> None:
    x = 20 * random(3, 1001)
    scaled = 0.25 * x.double()
    _engine.scale_logits(emulated, x.numpy(), scale=0.25, softcap=softcap)
    assert_close(x, softcap * torch.tanh(scaled / softcap) if softcap else scaled)


def test_gather_rows(emulated) -> None:
    x, out = random(9, 37).numpy(), np.full((5, 37), np.nan, np.float32)
    rows = [8, 0, 3, 3, 1]
    _engine.gather_rows(emulated, x, rows, out)
    np.testing.assert_array_equal(out, x[rows])
