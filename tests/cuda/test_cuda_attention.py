"""Attention on the CUDA backend against float64, and the same bits however its work is cut and shared."""

from __future__ import annotations

import ctypes
import itertools
import random
from typing import Any

import pytest
import torch
from emulator_library import load
from paged_cache import DTYPES, Device, Sequences

# Of a value's largest possible part: weights are rounded to 11 or 8 bits, with 8-bit scales twice.
TOLERANCE = {"f16": 2**-10, "bf16": 2**-7, "int8": 2**-9, "fp8": 2**-9}


def check(batch: Sequences, rows: list[Any], outs: list[torch.Tensor], **options: Any) -> None:
    for row, out in zip(rows, outs, strict=True):
        want, largest = batch.reference(row, **options), batch.v[row[0]].abs().max()
        worst = (out.double() - want).abs().max() if len(out) else torch.zeros(())
        assert worst <= TOLERANCE[batch.cache.dtype] * largest, (
            f"off by {worst} of {largest}"
        )  # no NaN either


def random_case(seed: int, longest: int) -> None:
    rng = random.Random(seed)
    kv_heads, group = rng.choice([(1, rng.randint(1, 16)), (2, rng.randint(1, 8)), (3, rng.randint(1, 3))])
    k_dim = rng.choice([64, 80, 96, 128, 192, 256])
    v_dim = rng.choice([k_dim, k_dim, 64, 128])
    lengths = [rng.randint(1, longest) for _ in range(rng.randint(1, 5))]
    heads = kv_heads * group
    cache = (list(DTYPES)[seed % 4], rng.choice([8, 16, 32]), kv_heads, k_dim, v_dim)
    batch = Sequences(lengths, heads, cache, seed=seed)
    rows = []
    for s, n in enumerate(lengths):
        start = rng.choice([n - 1, max(0, n - rng.randint(1, 40)), n])
        rows.append((s, start, n))
    options = {
        "window": rng.choice([0, 0, 1, rng.randint(2, 300)]),
        "softcap": rng.choice([0.0, 0.0, 5.0]),
        "sinks": rng.choice([None, torch.linspace(-5, 9, heads)]),
    }
    device = Device(rng.choice([1, 4, 132]), rng.choice([0, 1 << 16, 1 << 22]), 227 << 10, seed)
    check(batch, rows, batch.attend(rows, device, **options), **options)


@pytest.mark.parametrize("seed", range(4))
def test_attention_equals_float64(seed: int) -> None:
    random_case(seed, 200)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4, 28))
def test_attention_of_random_shapes_equals_float64(seed: int) -> None:
    random_case(seed, 420)


VARIANTS: dict[str, dict[str, Any]] = {
    "plain": {},
    "window": {"window": 150},
    "softcap and sinks": {"softcap": 4.0, "sinks": torch.linspace(-3, 6, 4)},
}


@pytest.mark.slow
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_same_bits_in_any_company(dtype: str, variant: str) -> None:
    options = VARIANTS[variant]
    lengths = [300, 258, 420, 390]
    rows = [(0, 299, 300), (1, 257, 258), (2, 382, 420), (3, 389, 390)]
    batch = Sequences(lengths, 4, (dtype, 16, 1, 64, 64), shared=256, seed=5)
    alone = [batch.attend([row], **options)[0] for row in rows]
    check(batch, rows, alone, **options)
    for device, groups in [
        (Device(1, 0, seed=3), []),
        (Device(132), []),
        (Device(4), [([0, 1, 2, 3], 2)]),
        (Device(132, seed=9), [([3, 1], 1), ([2, 0], 2)]),
        (Device(132, 1 << 15, seed=4), [([0, 1, 2, 3], 2)]),
        (Device(1, 0), [([0, 1, 2, 3], 2)]),
    ]:
        order = [2, 0, 3, 1] if not groups else [0, 1, 2, 3]
        outs = batch.attend([rows[r] for r in order], device, groups=groups, **options)
        assert all(torch.equal(alone[r], out) for r, out in zip(order, outs, strict=True)), (device, groups)


@pytest.mark.slow
def test_same_bits_of_long_contexts_however_they_are_cut() -> None:
    """More states than are combined at once, of rows and of a prefix that rows go on from."""
    batch = Sequences([4610, 4400], 2, ("f16", 16, 1, 64, 64), shared=4352, seed=8)
    rows = [(0, 4609, 4610), (1, 4398, 4400)]
    whole = batch.attend(rows, Device(1, 0))
    check(batch, rows, whole)
    for groups in ([], [([0, 1], 34)]):
        outs = batch.attend(rows, Device(132, 1 << 22, seed=2), groups=groups)
        assert all(torch.equal(a, b) for a, b in zip(whole, outs, strict=True)), groups


@pytest.mark.parametrize(
    "dtype", ["f16", *(pytest.param(d, marks=pytest.mark.slow) for d in ("bf16", "int8", "fp8"))]
)
def test_same_bits_however_a_prompt_is_cut(dtype: str) -> None:
    batch = Sequences([150], 4, (dtype, 16, 2, 64, 96), seed=1)
    whole = batch.attend([(0, 0, 150)])[0]
    check(batch, [(0, 0, 150)], [whole])
    cuts = [0, 1, 38, 128, 129, 140, 150]
    for device in (Device(), Device(132, seed=2)):
        pieces = [batch.attend([(0, a, b)], device)[0] for a, b in itertools.pairwise(cuts)]
        assert torch.equal(torch.cat(pieces), whole)


@pytest.mark.slow
@pytest.mark.parametrize("dtype", ["f16", "fp8"])
def test_same_bits_with_less_shared_memory(dtype: str) -> None:
    """Heads of 256 in two buffers, and in one where two do not fit."""
    batch = Sequences([200], 16, (dtype, 32, 1, 256, 256))
    outs = [batch.attend([(0, 190, 200)], Device(shared_bytes=kib << 10))[0] for kib in (227, 99)]
    check(batch, [(0, 190, 200)], outs[:1])
    assert torch.equal(*outs)


@pytest.mark.parametrize(
    ("partitions", "blocks", "state_cost", "pieces"),
    [
        (256, 8, 0.07, range(24, 40)),  # one long sequence: as many as the device holds at once
        (8, 256, 0.07, range(1, 2)),  # 32 sequences fill it by themselves
        (8, 2048, 0.07, range(1, 2)),  # so do 256
        (8, 8, 0.07, range(4, 9)),  # one short sequence
        (2, 8, 0.07, range(1, 2)),  # not worth another kernel
        (64, 128, 1.0, range(1, 3)),  # the states of many queries cost as much as their keys
        (64, 16, 1.0, range(4, 17)),
    ],
)
def test_rows_are_cut_where_that_pays(partitions: int, blocks: int, state_cost: float, pieces: range) -> None:
    """On a GPU of 132 multiprocessors that hold two blocks each."""
    piece = load("octavo_cuda_emulated").trial_partitions_per_block(
        partitions, ctypes.c_int64(blocks), ctypes.c_int64(264), ctypes.c_double(state_cost)
    )
    assert -(-partitions // piece) in pieces


def test_what_cannot_be_done_is_refused_by_name() -> None:
    for cache, wrong in [
        (("f16", 16, 1, 40, 64), "k_dim"),
        (("f16", 16, 1, 64, 72), "v_dim"),
        (("f16", 64, 1, 64, 64), "blocks of 8, 16 or 32"),
    ]:
        with pytest.raises(RuntimeError, match=wrong):
            Sequences([5], 2, cache).attend([(0, 4, 5)])
    with pytest.raises(RuntimeError, match="more shared memory than the 49152"):
        Sequences([5], 2, ("f16", 16, 1, 256, 256)).attend([(0, 4, 5)], Device(shared_bytes=48 << 10))
