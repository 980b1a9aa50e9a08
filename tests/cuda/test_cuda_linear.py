"""Products, embeddings and their weights on the CUDA backend: values against numpy in float64, and the same bits
whatever the company."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from emulator_library import load
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from weight_blocks import FORMATS, activations, random_weight

from octavo import _engine
from octavo.errors import OctavoError

# Half the distance between two activations of the type that tensor cores read, relative.
ROUNDING = dict.fromkeys(FORMATS, 2.0**-11) | {"f32": 0.0, "bf16": 2.0**-8}
SUMMATION = 2.0**-19  # of float32, for the widths here, relative to the sum of magnitudes
QUIET = settings(
    max_examples=4, deadline=None, suppress_health_check=list(HealthCheck), derandomize=True, database=None
)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def after_prologue(name: str, x: np.ndarray, norm: np.ndarray, eps: float) -> np.ndarray:
    x = x.astype(np.float64)
    if name == "none":
        return x
    if name == "rms_norm":
        return x / np.sqrt((x**2).mean(1, keepdims=True) + eps) * norm
    gate, up = np.split(x, 2, 1)
    if name == "silu_mul":
        return silu(gate) * up
    if name == "gelu_tanh_mul":
        return torch.nn.functional.gelu(torch.from_numpy(gate), approximate="tanh").numpy() * up
    gate, up = np.minimum(gate, 7), np.clip(up, -7, 7)
    return gate / (1 + np.exp(-1.702 * gate)) * (up + 1)


FAST = ("bf16", "q4_1", "q6_k")
MOST_SLOW = [fmt if fmt in FAST else pytest.param(fmt, marks=pytest.mark.slow) for fmt in FORMATS]
PROLOGUES = ("none", "rms_norm", "silu_mul", "gelu_tanh_mul", "clamped_silu_mul")


@pytest.mark.parametrize("fmt", FORMATS)
def test_weights_lose_nothing(emulated, fmt: str) -> None:
    rng = np.random.default_rng(0)
    (raw, name, _), values = random_weight(rng, fmt, 150, 160)
    order = rng.permutation(150).tolist()
    weight = _engine.pack(emulated, [(raw, name, order), (raw[:33], name, [])])
    np.testing.assert_array_equal(weight.dequantize(), np.concatenate([values[order], values[:33]]))
    assert weight.format == fmt
    assert (weight.n, weight.k) == (183, values.shape[1])


@pytest.mark.parametrize("fmt", MOST_SLOW)
@QUIET
@given(st.data())
def test_products_are_right(emulated, fmt: str, data) -> None:
    """Outputs are overwritten whole and nothing beside them is; lanes run in any order."""
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    load("octavo_cuda_emulated").octavo_emulator_set_seed(data.draw(st.integers(0, 1000)))
    n, m = data.draw(st.integers(1, 170)), data.draw(st.sampled_from([1, 2, 7, 9, 16, 17, 40, 65]))
    part, values = random_weight(rng, fmt, n, data.draw(st.integers(1, 700)))
    k = values.shape[1]
    prologue, biased, accumulate = data.draw(
        st.tuples(st.sampled_from(PROLOGUES), st.booleans(), st.booleans())
    )
    width = k if prologue in ("none", "rms_norm") else 2 * k
    x = activations(rng, m, width + data.draw(st.integers(0, 5)))[:, :width]
    x *= np.float32(10.0) ** rng.integers(-6, 7, (m, 1))  # rows of any magnitude
    norm = rng.normal(1, 0.3, k).astype(np.float32) if prologue == "rms_norm" else None
    bias = rng.normal(0, 1, n).astype(np.float32) if biased else None
    whole = np.full((m, n + 3), np.nan, np.float32)
    before = rng.normal(0, 1, (m, n)).astype(np.float32) if accumulate else np.zeros((m, n), np.float32)
    if accumulate:
        whole[:, :n] = before
    weight = _engine.pack(emulated, [part])
    _engine.linear_into(
        emulated,
        weight,
        x,
        whole[:, :n],
        prologue=prologue,
        norm_weight=norm,
        bias=bias,
        accumulate=accumulate,
    )
    assert np.isnan(whole[:, n:]).all()

    reads = after_prologue(prologue, x, norm, 1e-5)
    added = np.zeros(n) if bias is None else bias.astype(np.float64)
    expected = reads @ values.T.astype(np.float64) + added + before
    largest = np.abs(values).max(1) + np.abs(values).max() * 0.1
    magnitude = np.abs(reads) @ np.abs(values.T.astype(np.float64))
    summed = np.abs(reads).sum(1)[:, None] * largest + np.abs(added) + np.abs(before)
    bound = ROUNDING[fmt] * magnitude + SUMMATION * summed
    assert np.nanmax(np.abs(whole[:, :n] - expected) / (bound + 1e-30)) <= 1.0


@pytest.mark.parametrize("fmt", MOST_SLOW)
def test_a_row_has_the_same_bits_in_any_company(emulated, fmt: str) -> None:
    rng = np.random.default_rng(1)
    part, values = random_weight(rng, fmt, 140, 400)
    weight = _engine.pack(emulated, [part])
    x = activations(rng, 70, values.shape[1])

    def product(rows: slice) -> np.ndarray:
        out = np.full((len(x[rows]), weight.n), np.nan, np.float32)
        _engine.linear_into(emulated, weight, x[rows], out)
        return out.view(np.uint32)

    whole = product(slice(0, 70))
    for first, last in [(0, 1), (69, 70), (3, 8), (3, 15), (11, 31), (0, 33), (6, 70)]:
        np.testing.assert_array_equal(product(slice(first, last)), whole[first:last])


@pytest.mark.slow
def test_every_count_of_rows_gives_the_same_bits(emulated) -> None:
    rng = np.random.default_rng(2)
    part, values = random_weight(rng, "q4_k", 20, 512)
    weight = _engine.pack(emulated, [part])
    x = activations(rng, 64, values.shape[1])
    whole = np.empty((64, weight.n), np.float32)
    _engine.linear_into(emulated, weight, x, whole)
    for m in range(1, 64):
        out = np.full((m, weight.n), np.nan, np.float32)
        _engine.linear_into(emulated, weight, x[:m], out)
        np.testing.assert_array_equal(out.view(np.uint32), whole[:m].view(np.uint32))


def test_parts_of_several_formats_are_multiplied_in_one(emulated) -> None:
    rng = np.random.default_rng(3)
    made = [random_weight(rng, fmt, n, 256) for fmt, n in [("q6_k", 40), ("bf16", 7), ("q8_0", 19)]]
    weight = _engine.pack(emulated, [part for part, _ in made])
    x = activations(rng, 5, 256)
    out = np.full((5, 66), np.nan, np.float32)
    _engine.linear_into(emulated, weight, x, out)
    expected = x.astype(np.float64) @ np.concatenate([values for _, values in made]).T
    assert np.abs(out - expected).max() <= 0.01 * np.abs(expected).max()


@pytest.mark.parametrize("fmt", ["f16", "q4_1", "f8x32"])
def test_a_row_that_is_not_finite_spoils_no_other(emulated, fmt: str) -> None:
    rng = np.random.default_rng(4)
    part, _ = random_weight(rng, fmt, 20, 128)
    weight = _engine.pack(emulated, [part])
    x = activations(rng, 6, 128)
    fine = np.empty((6, 20), np.float32)
    _engine.linear_into(emulated, weight, x, fine)
    x[2, 5], x[4, 100] = np.nan, np.inf
    out = np.empty((6, 20), np.float32)
    _engine.linear_into(emulated, weight, x, out)
    assert not np.isfinite(out[[2, 4]]).any()
    rest = [0, 1, 3, 5]
    np.testing.assert_array_equal(out[rest], fine[rest])


def test_nan_of_e4m3_stays_nan(emulated) -> None:
    (raw, fmt, _), _ = random_weight(np.random.default_rng(5), "f8x32", 20, 128)
    raw[3, 50] = 0x7F
    weight = _engine.pack(emulated, [(raw, fmt, [])])
    out = np.empty((1, 20), np.float32)
    _engine.linear_into(emulated, weight, np.ones((1, 128), np.float32), out)
    assert np.isnan(out[0]).tolist() == [row == 3 for row in range(20)]


@pytest.mark.parametrize("fmt", ["f32", "bf16", "q8_0", "q6_k"])
def test_embeddings_are_rows_times_a_scale(emulated, fmt: str) -> None:
    part, values = random_weight(np.random.default_rng(6), fmt, 50, 96)
    table = _engine.pack(emulated, [part])
    ids = np.array([49, 0, 7, 7, 16], np.int32)
    np.testing.assert_array_equal(_engine.embed(emulated, table, ids, 3.0), values[ids] * np.float32(3.0))


@pytest.mark.parametrize("fmt", ["q8_0", "q4_1"])
def test_weights_are_quantized_while_they_are_packed_as_on_the_cpu(emulated, fmt: str) -> None:
    part = (torch.randn(40, 192, generator=torch.manual_seed(0)).to(torch.bfloat16), "", [])
    expected = _engine.pack(_engine.BackendOps(1, "baseline"), [part], pack_as=fmt)
    weight = _engine.pack(emulated, [part], pack_as=fmt)
    assert weight.format == fmt
    np.testing.assert_array_equal(weight.dequantize(), expected.dequantize())


def test_what_cannot_be_packed_is_named(emulated) -> None:
    with pytest.raises(OctavoError, match="48 columns; to quantize it a multiple of 32"):
        _engine.pack(emulated, [(np.zeros((8, 48), np.float32), "", [])], pack_as="q8_0")
    with pytest.raises(OctavoError, match="64 columns, the matrices packed with it have 32"):
        _engine.pack(emulated, [(np.zeros((8, k), np.float32), "", []) for k in (32, 64)])


@pytest.mark.parametrize("fmt", ["bf16", "q6_k", "int4x128"])
def test_columns_of_any_order_meet_their_features(emulated, fmt: str) -> None:
    rng = np.random.default_rng(7)
    part, values = random_weight(rng, fmt, 20, 256)
    order = rng.permutation(256)
    weight = _engine.pack(emulated, [part], input_order=order.tolist())
    np.testing.assert_array_equal(weight.dequantize()[:, order], values)
    x, out = activations(rng, 3, 256), np.full((3, 20), np.nan, np.float32)
    _engine.linear_into(emulated, weight, x, out)
    expected = x[:, order].astype(np.float64) @ values.T
    assert np.abs(out - expected).max() <= 0.01 * np.abs(expected).max()
