"""The passes over a row: right to numpy, and every instruction set gives the same bits."""

from __future__ import annotations

import numpy as np
import pytest
from sampling_reference import logits, sampling

LENGTHS = [1, 7, 8, 9, 63, 64, 65, 127, 1000, 49152]


@pytest.fixture(params=["baseline", "best"])
def kernels(request):
    return sampling.baseline_row_kernels() if request.param == "baseline" else sampling.row_kernels()


@pytest.mark.parametrize("n", LENGTHS)
def test_passes_equal_numpy(kernels, n):
    row = logits(n, n)
    highest = row.max()
    assert kernels.scan(row) == (highest, True)
    exact = np.exp(row.astype(np.float64) - highest)
    assert kernels.sum_exp(row, highest) == pytest.approx(exact.sum(), rel=5e-7)
    total, weights = kernels.weigh(row, highest, 2.0)
    assert total == sum(weights)
    np.testing.assert_allclose(weights, exact**2 * 2**30, rtol=5e-6, atol=1.0)
    assert kernels.count_greater(row, row[0]) == (row > row[0]).sum()


@pytest.mark.parametrize("n", LENGTHS)
def test_every_instruction_set_gives_the_same_bits(n):
    row = logits(n + 1, n, 8.0)
    row[n // 3] = -np.inf
    baseline, best = sampling.baseline_row_kernels(), sampling.row_kernels()
    highest = np.float32(9.0)
    assert baseline.sum_exp(row, highest) == best.sum_exp(row, highest)
    assert baseline.weigh(row, highest, 0.7) == best.weigh(row, highest, 0.7)
    assert baseline.scan(row) == best.scan(row)


def test_the_exponential_is_right_over_its_whole_range(kernels):
    x = -np.linspace(0, 90, 20001).astype(np.float32)
    for value in x[::401]:
        got = kernels.sum_exp(np.array([value], np.float32), np.float32(0))
        want = np.exp(np.float64(value)) if value >= -80 else 0.0
        assert got == pytest.approx(want, rel=3e-7)
    assert kernels.sum_exp(np.array([-np.inf, 0.0], np.float32), np.float32(0)) == 1.0


@pytest.mark.parametrize("n", LENGTHS)
def test_a_scan_finds_what_is_not_finite(kernels, n):
    for bad in (np.nan, np.inf, -np.nan):
        row = logits(n, n)
        row[n - 1] = bad
        assert not kernels.scan(row)[1]
    assert kernels.scan(np.full(n, -np.inf, np.float32)) == (-np.inf, True)
    assert kernels.scan(np.full(n, np.finfo(np.float32).max, np.float32))[1]
