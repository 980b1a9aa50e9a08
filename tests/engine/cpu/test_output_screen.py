"""A screened product finds the greatest outputs of each row, bit for bit as the whole one computes them."""

import itertools

import numpy as np
import pytest
import torch
from test_linear import ISAS, linear, make_ops
from weight_blocks import DENSE, GGUF, random_weight

from octavo import _engine
from octavo.errors import InvalidArgumentError

SMALL = {"q4_0", "q4_1", "q5_0", "q5_1", "q6_k", "q2_k", "q3_k", "q4_k", "q5_k", "iq4_nl", "iq4_xs", "mxfp4"}


def assert_greatest(whole: np.ndarray, screened: np.ndarray) -> None:
    for expected, actual in zip(whole, screened, strict=True):
        best = expected == expected.max()
        assert np.array_equal(actual[best], expected[best])
        assert (actual[~best] < expected.max()).all()


def heavy(rng: np.random.Generator, rows: int, k: int, features: np.ndarray) -> np.ndarray:
    """Inputs and embeddings as models have them: few features hold most of the norm."""
    out = rng.standard_normal((rows, k), np.float32)
    out[:, features] *= 8
    out[:, features[0]] += 20
    return out


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("fmt", ["f32", "f16", "bf16", "q8_0"])
@pytest.mark.parametrize("seed", range(3))
def test_the_greatest_outputs_are_those_of_the_whole_product(isa: str, fmt: str, seed: int) -> None:
    rng = np.random.default_rng(seed)
    n, k = int(rng.integers(800, 4000)), 32 * int(rng.integers(5, 20))
    features = rng.permutation(k)[: k // 16 + 1]
    ops = make_ops(isa, threads=seed % 3 + 1)
    weight = rng.standard_normal((n, k)).astype(np.float32)
    weight[:, features] *= 4
    dense = torch.from_numpy(weight).to(DENSE.get(fmt, torch.float32))
    packed = _engine.pack(ops, [(dense, "", [])], pack_as="" if fmt in DENSE else fmt)
    screen = _engine.make_screen(ops, packed)
    norm = rng.uniform(0.5, 2, k).astype(np.float32)
    skipped = 0
    for m in (1, 2, 3, 4, 5, 1, 2):
        x = heavy(rng, m, k, features)
        x[0] = 3 * weight[7]  # one row stands out: the others need not be read
        for options in ({}, {"prologue": "rms_norm", "norm_weight": norm}):
            whole = linear(ops, packed, x, **options)
            screened = linear(ops, packed, x, screen=screen, **options)
            assert_greatest(whole, screened)
            skipped += int((whole != screened).sum())
    assert skipped > 0


@pytest.mark.parametrize("isa", ISAS)
def test_outputs_that_are_equally_great_are_all_found(isa: str) -> None:
    rng = np.random.default_rng(3)
    ops = make_ops(isa, threads=2)
    weight = rng.standard_normal((1000, 128)).astype(np.float32)
    twins = rng.permutation(1000)[:10]
    weight[twins] = weight[twins[0]]
    near = [i for i in range(1000) if i not in twins][:50]
    weight[near] = weight[twins[0]] * (1 - 2.0 ** -rng.integers(8, 22, (50, 1)).astype(np.float32))
    packed = _engine.pack(ops, [(weight, "", [])])
    screen = _engine.make_screen(ops, packed)
    for sign in (1, -1):
        x = sign * weight[twins[:1]] + 0.01 * rng.standard_normal((1, 128)).astype(np.float32)
        assert_greatest(linear(ops, packed, x), linear(ops, packed, x, screen=screen))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(("groups", "size"), [(5, 1.0), (128, 3e-21)])
def test_a_row_whose_coarse_copy_is_as_far_off_as_it_can_be(isa: str, groups: int, size: float) -> None:
    """Every weight of the best row is rounded down by almost half a step, every other one of its rival up."""
    k = 32 * groups
    weight = np.zeros((64, k), np.float32)
    weight[0] = -10000 + np.arange(k)  # keeps the columns in their order
    first, second = weight[11].reshape(groups, 32), weight[50].reshape(groups, 32)
    first[1:, 1:], second[1:, 1::2], second[1:, 2::2] = 1.49, 1.51, 1.46
    first[1:, 0] = second[1:, 0] = 8
    x = np.full((groups, 32), size, np.float32)
    x[0], x[:, 0] = 0, 0
    ops = make_ops(isa)
    packed = _engine.pack(ops, [(weight, "", [])])
    screened = linear(ops, packed, x.reshape(1, k), screen=_engine.make_screen(ops, packed))
    assert screened.argmax() == 11
    assert screened[0, 11] == linear(ops, packed, x.reshape(1, k))[0, 11]


def test_inputs_with_the_same_greatest_output_are_screened_together() -> None:
    rng = np.random.default_rng(7)
    ops = make_ops("baseline", threads=2)
    weight = rng.standard_normal((1000, 128)).astype(np.float32)
    packed = _engine.pack(ops, [(weight, "", [])])
    screen = _engine.make_screen(ops, packed)
    x = np.repeat(3 * weight[500:501], 4, axis=0)
    whole, screened = linear(ops, packed, x), linear(ops, packed, x, screen=screen)
    assert_greatest(whole, screened)
    assert ((whole != screened).mean(1) > 0.5).all()


@pytest.mark.parametrize("isa", ISAS)
def test_what_is_not_finite_is_found_too(isa: str) -> None:
    rng = np.random.default_rng(4)
    ops = make_ops(isa)
    base = rng.standard_normal((600, 96)).astype(np.float32)
    for row, value in itertools.product((0, 333, 599), (np.nan, np.inf, -np.inf, 3e38)):
        weight = base.copy()
        weight[row, 5] = value
        packed = _engine.pack(ops, [(weight, "", [])])
        screen = _engine.make_screen(ops, packed)
        x = rng.standard_normal((2, 96)).astype(np.float32)
        whole, screened = linear(ops, packed, x), linear(ops, packed, x, screen=screen)
        assert np.array_equal(whole[:, row], screened[:, row], equal_nan=True)
        rest = np.arange(600) != row
        if not np.isposinf(whole[:, row]).any():
            assert_greatest(whole[:, rest], np.where(np.isnan(screened), -np.inf, screened)[:, rest])
    packed = _engine.pack(ops, [(base, "", [])])
    screen = _engine.make_screen(ops, packed)
    for value in (np.nan, np.inf):
        x = rng.standard_normal((1, 96)).astype(np.float32)
        x[0, 7] = value
        assert np.array_equal(linear(ops, packed, x), linear(ops, packed, x, screen=screen), equal_nan=True)


def test_a_product_of_nothing_but_zeros() -> None:
    ops = make_ops("baseline", threads=2)
    packed = _engine.pack(ops, [(np.zeros((100, 64), np.float32), "", [])])
    screen = _engine.make_screen(ops, packed)
    for x in (np.zeros((1, 64), np.float32), np.ones((3, 64), np.float32)):
        assert np.array_equal(linear(ops, packed, x, screen=screen), np.zeros((len(x), 100)))


def test_an_input_for_which_it_does_not_pay_is_multiplied_whole() -> None:
    rng = np.random.default_rng(5)
    ops = make_ops("baseline")
    weight = 1 + 1e-3 * rng.standard_normal((800, 64)).astype(np.float32)  # all rows alike
    packed = _engine.pack(ops, [(weight, "", [])])
    screen = _engine.make_screen(ops, packed)
    for _ in range(100):
        x = rng.standard_normal((1, 64)).astype(np.float32)
        assert_greatest(linear(ops, packed, x), linear(ops, packed, x, screen=screen))


@pytest.mark.parametrize("fmt", sorted(SMALL & set(GGUF)))
def test_a_matrix_of_few_bits_has_no_screen(fmt: str) -> None:
    ops = make_ops("baseline")
    part, _ = random_weight(np.random.default_rng(6), fmt, 64, 512)
    assert _engine.make_screen(ops, _engine.pack(ops, [part])) is None


def test_shapes_without_a_screen() -> None:
    ops = make_ops("baseline")
    for n, k in ((100, 48), (100, 32), (7, 128)):
        assert _engine.make_screen(ops, _engine.pack(ops, [(np.ones((n, k), np.float32), "", [])])) is None
    mixed = [(np.ones((40, 64), np.float32), "", []), (np.ones((40, 64), np.float16), "", [])]
    assert _engine.make_screen(ops, _engine.pack(ops, mixed)) is None


def test_a_screen_is_one_matrixs_and_takes_no_bias() -> None:
    ops = make_ops("baseline")
    packed = _engine.pack(ops, [(np.ones((64, 64), np.float32), "", [])])
    other = _engine.pack(ops, [(np.ones((32, 64), np.float32), "", [])])
    screen = _engine.make_screen(ops, packed)
    assert screen.max_tokens == 4
    assert screen.nbytes < packed.nbytes / 3
    x = np.ones((1, 64), np.float32)
    with pytest.raises(InvalidArgumentError, match="another matrix"):
        linear(ops, other, x, screen=screen)
    for options in ({"bias": np.ones(64, np.float32)}, {"accumulate": True}):
        with pytest.raises(InvalidArgumentError, match="no bias"):
            linear(ops, packed, x, screen=screen, **options)
