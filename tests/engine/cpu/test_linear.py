"""Packed weights and linear(): values against torch in float64 and the gguf package, and the same bits for every
number of tokens, tile and thread."""

from dataclasses import dataclass

import gguf
import numpy as np
import pytest
import torch
from weight_blocks import DENSE, GGUF, activations, block_of, random_weight

from octavo import _engine
from octavo.errors import OctavoError

# Packed bytes for each byte of the file where they differ: sub-scales of 6 bits are widened to 8.
GROWTH = {"q3_k": 912 / 880, "q4_k": 1184 / 1152, "q5_k": 1440 / 1408, "iq4_xs": 1104 / 1088}
FORMATS = [*DENSE, *GGUF]
ISAS = ["baseline", "avx2", "avx512vnni", "avx512bf16"]


def make_ops(isa: str, threads: int = 1):
    try:
        return _engine.BackendOps(threads, isa)
    except OctavoError:
        pytest.skip(f"this machine has no {isa}")


@pytest.fixture(params=ISAS)
def ops(request):
    return make_ops(request.param)


def fit(fmt: str, k: int) -> int:
    """The next width that the format can have."""
    return -(-k // block_of(fmt)) * block_of(fmt)


@dataclass(frozen=True)
class Codes:
    """How activations are quantized: the largest code, and the multiple of a row's mean magnitude above which a value
    is an outlier."""

    limit: int = 127
    factor: float = 9.0


def codes_of(ops, fmt: str) -> Codes:
    return Codes(32767, np.inf) if fmt == "q8_0" and ops.isa != "avx512bf16" else Codes()


def outliers(x: np.ndarray, codes: Codes) -> np.ndarray:
    """The activations that are multiplied in float32."""
    magnitude = np.abs(x.astype(np.float64))
    return magnitude > codes.factor * magnitude.mean(1, keepdims=True)


def half_codes(x: np.ndarray, codes: Codes) -> np.ndarray:
    """For every activation, half the distance between two codes of its group."""
    groups = np.where(outliers(x, codes), 0, np.abs(x)).reshape(len(x), -1, 32)
    return np.repeat(groups.max(-1) / (2 * codes.limit), 32, axis=1)


def rounds_to_bf16(ops, fmt: str) -> bool:
    """Whether bf16 weights are multiplied with activations in bf16."""
    return fmt == "bf16" and ops.isa == "avx512bf16"


def as_read(ops, fmt: str, x: np.ndarray) -> np.ndarray:
    """The activations that dense weights meet."""
    return torch.from_numpy(x).bfloat16().float().numpy() if rounds_to_bf16(ops, fmt) else x


def quantized_activations(x: np.ndarray, codes: Codes) -> np.ndarray:
    """x after symmetric quantization of every group of 32 without its outliers, in float64."""
    scale = 2.0 * half_codes(x, codes)
    rounded = np.rint(x / np.where(scale == 0, 1, scale))
    return np.where(outliers(x, codes), x, rounded * scale)


def linear(ops, weight, x: np.ndarray, **options) -> np.ndarray:
    out = options.pop("out", None)
    if out is None:
        out = np.full((x.shape[0], weight.n), np.nan, np.float32)
    _engine.linear_into(ops, weight, x, out, **options)
    return out


def assert_close(actual: np.ndarray, expected: np.ndarray, relative: float) -> None:
    scale = np.abs(expected).max() + 1e-12
    assert np.abs(actual - expected).max() <= relative * scale


def assert_same_bits(a: np.ndarray, b: np.ndarray) -> None:
    np.testing.assert_array_equal(
        np.ascontiguousarray(a).view(np.uint32), np.ascontiguousarray(b).view(np.uint32)
    )


# Rows that fill panels and rows that do not; few groups and many; dense widths that are no multiple of anything.
SHAPES = [
    (64, 576),
    (1, 64),
    *(pytest.param(shape, marks=pytest.mark.slow) for shape in [(8, 32), (17, 96), (100, 320)]),
]


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shape", SHAPES)
def test_packing_loses_nothing(fmt: str, shape: tuple[int, int]) -> None:
    n, k = shape[0], fit(fmt, shape[1])
    part, values = random_weight(np.random.default_rng(1), fmt, n, k)
    weight = _engine.pack(make_ops("baseline"), [part])
    assert (weight.n, weight.k, weight.format) == (n, k, fmt)
    assert_same_bits(weight.dequantize(), values)


@pytest.mark.parametrize("fmt", GGUF)
def test_packed_blocks_are_as_large_as_in_the_file(fmt: str) -> None:
    part, _ = random_weight(np.random.default_rng(1), fmt, 64, 768)
    packed = _engine.pack(make_ops("baseline"), [part]).nbytes
    assert packed == pytest.approx(part[0].nbytes * GROWTH.get(fmt, 1))


def test_every_exponent_of_mxfp4() -> None:
    raw = np.random.default_rng(1).integers(0, 256, (256, 17), dtype=np.uint8)
    raw[:, 0] = np.arange(256)
    weight = _engine.pack(make_ops("baseline"), [(raw, "mxfp4", [])])
    with np.errstate(over="ignore"):
        assert_same_bits(weight.dequantize(), gguf.quants.dequantize(raw, GGUF["mxfp4"]))


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("shape", [*SHAPES, (40, 2048)])
def test_linear_equals_the_reference(ops, fmt: str, shape: tuple[int, int]) -> None:
    rng = np.random.default_rng(2)
    part, values = random_weight(rng, fmt, shape[0], fit(fmt, shape[1]))
    weight = _engine.pack(ops, [part])
    for m in (1, 2, 3, 4, 5, 7, 12, 61):
        check_linear(ops, rng, fmt, weight, values, m)


def check_linear(ops, rng, fmt: str, weight, values: np.ndarray, m: int) -> None:
    x = activations(rng, m, values.shape[1])
    y = linear(ops, weight, x)
    w = torch.from_numpy(values).double().T

    def product(a: np.ndarray, b: torch.Tensor) -> np.ndarray:
        return (torch.from_numpy(a.astype(np.float64)) @ b).numpy()

    rounding = 1e-6 * product(np.abs(x), w.abs())  # of float32, relative to the sum of magnitudes
    if fmt in DENSE:
        assert (np.abs(y - product(as_read(ops, fmt, x), w)) <= rounding).all()
        return
    # Half a code for every activation that is no outlier is the most that quantization may cost ...
    codes = codes_of(ops, fmt)
    half = np.where(outliers(x, codes), 0, half_codes(x, codes))
    assert (np.abs(y - product(x, w)) <= product(half, w.abs()) + rounding).all()
    # ... and all but the few that lie on the edge between two codes have the code of the reference.
    assert np.median(np.abs(y - product(quantized_activations(x, codes), w)) / rounding) <= 1


@pytest.mark.parametrize("fmt", [fmt for fmt in GGUF if fmt != "q8_0"])
def test_an_outlier_costs_the_others_nothing(ops, fmt: str) -> None:
    rng, k = np.random.default_rng(14), fit(fmt, 192)
    part, values = random_weight(rng, fmt, 40, k)
    weight = _engine.pack(ops, [part])
    x = rng.normal(0, 1, (1, k)).astype(np.float32)
    for place in range(k):
        spiked = x.copy()
        spiked[0, place] = 0
        rest = linear(ops, weight, spiked)
        spiked[0, place] = 1000
        expected = rest + 1000.0 * values[:, place].astype(np.float64)
        y = linear(ops, weight, spiked)
        assert_close(y, expected, 1e-6)


@pytest.mark.parametrize("fmt", ["q4_1", "q5_0"])
def test_as_many_outliers_as_there_can_be(ops, fmt: str) -> None:
    part, values = random_weight(np.random.default_rng(15), fmt, 40, 192)
    x = np.zeros((5, 192), np.float32)
    for row, count in enumerate([1, 2, 20, 21, 22]):  # 22 of 192 values are 8.7 times the mean
        x[row, np.linspace(0, 191, count).astype(int)] = np.linspace(1, 1.01, count)
    y = linear(ops, _engine.pack(ops, [part]), x)
    expected = x.astype(np.float64) @ values.T.astype(np.float64)
    assert_close(y[:3], expected[:3], 1e-6)
    assert_close(y, expected, 0.01)


@pytest.mark.parametrize("fmt", ["q4_1", "q5_0"])
def test_numbers_too_small_for_a_mean_are_no_outliers(ops, fmt: str) -> None:
    part, _ = random_weight(np.random.default_rng(16), fmt, 40, 192)
    x = np.zeros((1, 192), np.float32)
    x[0, ::3] = np.float32(1e-45)  # 64 of them: their mean is rounded to 0
    y = linear(ops, _engine.pack(ops, [part]), x)
    assert (np.abs(y) <= 1e-30).all()


@pytest.mark.parametrize("fmt", DENSE)
@pytest.mark.parametrize("k", [1, 7, 33, 577])
def test_dense_widths_need_no_multiple(ops, fmt: str, k: int) -> None:
    rng = np.random.default_rng(3)
    part, values = random_weight(rng, fmt, 19, k)
    x = rng.normal(0, 1, (8, k)).astype(np.float32)
    y = linear(ops, _engine.pack(ops, [part]), x)
    assert_close(y, as_read(ops, fmt, x).astype(np.float64) @ values.T.astype(np.float64), 1e-5)


@pytest.mark.parametrize(
    ("fmt", "prologue"),
    [(fmt, "none") for fmt in FORMATS]
    + [
        (fmt, prologue)
        for fmt in ("f32", "bf16", "q4_1", "q8_0", "q4_k")
        for prologue in ("rms_norm", "silu_mul")
    ],
)
@pytest.mark.parametrize("isa", [pytest.param(ISAS[0], marks=pytest.mark.slow), *ISAS[1:]])
def test_the_same_bits_for_every_company_and_thread_count(isa: str, fmt: str, prologue: str) -> None:
    rng = np.random.default_rng(4)
    n, k = 200, fit(fmt, 608)
    part, _ = random_weight(rng, fmt, n, k)
    x = activations(rng, 131, 2 * k if prologue == "silu_mul" else k)
    options = {"prologue": prologue, "norm_weight": rng.normal(1, 0.1, k).astype(np.float32)}
    one = make_ops(isa, 1)
    weight = _engine.pack(one, [part])
    alone = np.concatenate([linear(one, weight, x[i : i + 1], **options) for i in range(len(x))])
    for threads in (1, 2, 3, 4):
        ops = make_ops(isa, threads)
        packed = _engine.pack(ops, [part])
        for m in (2, 3, 4, 6, 7, 13, 48, 49, 131):
            rows = rng.choice(len(x), m, replace=False)
            assert_same_bits(linear(ops, packed, x[rows], **options), alone[rows])


@pytest.mark.parametrize("fmt", GGUF)
@pytest.mark.parametrize("m", [1, 4, 23])
def test_avx512_gives_the_bits_of_avx2(fmt: str, m: int) -> None:
    rng = np.random.default_rng(16)
    part, _ = random_weight(rng, fmt, 300, fit(fmt, 352))
    x = activations(rng, m, fit(fmt, 352))
    a, b = (linear(ops, _engine.pack(ops, [part]), x) for ops in map(make_ops, ("avx2", "avx512vnni")))
    assert_same_bits(a, b)


@pytest.mark.parametrize("fmt", FORMATS)
def test_a_row_of_weights_gives_the_same_bits_wherever_it_stands(ops, fmt: str) -> None:
    rng = np.random.default_rng(5)
    part, _ = random_weight(rng, fmt, 70, fit(fmt, 352))
    x = rng.normal(0, 1, (9, fit(fmt, 352))).astype(np.float32)
    whole = linear(ops, _engine.pack(ops, [part]), x)
    order = rng.permutation(70).tolist()
    permuted = _engine.pack(ops, [(part[0], part[1], order)])
    assert_same_bits(linear(ops, permuted, x), whole[:, order])
    fused = _engine.pack(ops, [(part[0][:3], part[1], []), (part[0][3:], part[1], [])])
    assert_same_bits(linear(ops, fused, x), whole)


def test_parts_of_different_formats_make_one_matrix(ops) -> None:
    rng = np.random.default_rng(6)
    x = rng.normal(0, 1, (10, 256)).astype(np.float32)
    sizes = [5, 16, 33, 8, 9, 24, 1, 50, 7, 12, 8, 3, 17, 6, 21, 4, 7]
    parts = [random_weight(rng, fmt, n, 256) for fmt, n in zip([*FORMATS, "q4_0"], sizes, strict=True)]
    bias = rng.normal(0, 1, sum(sizes)).astype(np.float32)
    fused = _engine.pack(ops, [part for part, _ in parts])
    assert fused.format == "+".join([*FORMATS, "q4_0"])
    assert_same_bits(fused.dequantize(), np.concatenate([values for _, values in parts]))
    apart = np.concatenate([linear(ops, _engine.pack(ops, [part]), x) for part, _ in parts], axis=1)
    assert_same_bits(linear(ops, fused, x, bias=bias), apart + bias)


@pytest.mark.parametrize("fmt", ["f32", "q4_1"])
@pytest.mark.parametrize("m", [1, 20])
def test_epilogues_add_bias_and_the_old_value(ops, fmt: str, m: int) -> None:
    rng = np.random.default_rng(7)
    part, _ = random_weight(rng, fmt, 45, 64)
    weight = _engine.pack(ops, [part])
    x = rng.normal(0, 1, (m, 64)).astype(np.float32)
    bias = rng.normal(0, 1, 45).astype(np.float32)
    old = rng.normal(0, 1, (m, 45)).astype(np.float32)
    plain = linear(ops, weight, x)
    assert_same_bits(linear(ops, weight, x, bias=bias), plain + bias)
    assert_same_bits(linear(ops, weight, x, bias=bias, accumulate=True, out=old.copy()), old + (plain + bias))


@pytest.mark.parametrize("fmt", ["f32", "bf16", "q4_1", "q8_0"])
@pytest.mark.parametrize("m", [1, 9])
def test_prologues_equal_torch(ops, fmt: str, m: int) -> None:
    rng = np.random.default_rng(8)
    n, k, eps = 33, 320, 1e-5
    part, values = random_weight(rng, fmt, n, k)
    weight = _engine.pack(ops, [part])
    norm = torch.from_numpy(rng.normal(1, 0.2, k).astype(np.float32))
    x = torch.from_numpy(rng.normal(0, 2, (m, 2 * k)).astype(np.float32))
    matrix = torch.from_numpy(values).double().T
    relative = 0.005 if rounds_to_bf16(ops, fmt) else 1e-5
    if fmt in GGUF:
        relative = 0.03 if codes_of(ops, fmt).limit == 127 else 1e-4
    y = linear(ops, weight, x[:, :k].numpy(), prologue="rms_norm", norm_weight=norm.numpy(), eps=eps)
    normed = torch.nn.functional.rms_norm(x[:, :k].double(), (k,), norm.double(), eps)
    assert_close(y, (normed @ matrix).numpy(), relative)
    y = linear(ops, weight, x.numpy(), prologue="silu_mul")
    gated = torch.nn.functional.silu(x[:, :k].double()) * x[:, k:].double()
    assert_close(y, (gated @ matrix).numpy(), relative)


@pytest.mark.parametrize("fmt", ["bf16", "q4_1"])
@pytest.mark.parametrize("m", [1, 9])
def test_a_prologue_gives_the_bits_of_the_op_before_it(ops, fmt: str, m: int) -> None:
    rng = np.random.default_rng(13)
    k = 320
    part, _ = random_weight(rng, fmt, 33, k)
    weight = _engine.pack(ops, [part])
    norm = rng.normal(1, 0.2, k).astype(np.float32)
    x = rng.normal(0, 2, (m, 2 * k)).astype(np.float32)
    row = np.empty((m, k), np.float32)
    narrow = np.ascontiguousarray(x[:, :k])
    _engine.rms_norm(ops, narrow, norm, 1e-5, row)
    fused = linear(ops, weight, narrow, prologue="rms_norm", norm_weight=norm, eps=1e-5)
    assert_same_bits(fused, linear(ops, weight, row))
    _engine.silu_and_mul(ops, x, row)
    assert_same_bits(linear(ops, weight, x, prologue="silu_mul"), linear(ops, weight, row))


@pytest.mark.parametrize("fmt", FORMATS)
def test_rows_may_lie_apart_and_nothing_else_is_written(ops, fmt: str) -> None:
    rng = np.random.default_rng(9)
    part, _ = random_weight(rng, fmt, 21, fit(fmt, 64))
    weight = _engine.pack(ops, [part])
    wide = rng.normal(0, 1, (9, weight.k + 36)).astype(np.float32)
    out = np.full((9, 40), 7.0, np.float32)
    _engine.linear_into(ops, weight, wide[:, 10:-26], out[:, 5:26])
    assert_same_bits(out[:, 5:26], linear(ops, weight, np.ascontiguousarray(wide[:, 10:-26])))
    assert (out[:, :5] == 7).all() and (out[:, 26:] == 7).all()


@pytest.mark.parametrize("fmt", FORMATS)
@pytest.mark.parametrize("poison", [np.nan, np.inf])
def test_a_value_that_is_not_finite_shows_in_its_row_only(ops, fmt: str, poison: float) -> None:
    rng = np.random.default_rng(10)
    part, _ = random_weight(rng, fmt, 16, fit(fmt, 64))
    weight = _engine.pack(ops, [part])
    x = rng.normal(0, 1, (6, fit(fmt, 64))).astype(np.float32)
    clean = linear(ops, weight, x)
    x[2, 37] = poison
    y = linear(ops, weight, x)
    assert not np.isfinite(y[2]).any()
    keep = [0, 1, 3, 4, 5]
    assert_same_bits(y[keep], clean[keep])


@pytest.mark.parametrize("fmt", GGUF)
def test_zero_and_tiny_activations(ops, fmt: str) -> None:
    part, _ = random_weight(np.random.default_rng(11), fmt, 16, fit(fmt, 64))
    weight = _engine.pack(ops, [part])
    assert (linear(ops, weight, np.zeros((3, weight.k), np.float32)) == 0).all()
    assert np.isfinite(linear(ops, weight, np.full((1, weight.k), 1e-42, np.float32))).all()


@pytest.mark.parametrize("fmt", FORMATS)
def test_embed_reads_rows(ops, fmt: str) -> None:
    rng = np.random.default_rng(12)
    part, values = random_weight(rng, fmt, 50, fit(fmt, 96))
    table = _engine.pack(ops, [part])
    ids = np.array([0, 49, 7, 7, 31], np.int32)
    assert_same_bits(_engine.embed(ops, table, ids), values[ids])
    assert_same_bits(_engine.embed(ops, table, ids, 2.5), values[ids] * np.float32(2.5))
    for bad in (-1, 50):
        with pytest.raises(Exception, match=rf"{bad} is outside \[0, 50\)"):
            _engine.embed(ops, table, np.array([0, bad], np.int32))


def test_torch_tensors_are_used_in_place(ops) -> None:
    torch.manual_seed(0)
    w, x, out = torch.randn(24, 64), torch.randn(5, 64), torch.zeros(5, 24)
    _engine.linear_into(ops, _engine.pack(ops, [(w, "", [])]), x, out)
    torch.testing.assert_close(out, x @ w.T, rtol=1e-4, atol=1e-4)


def test_bad_input_names_the_thing_and_the_limit(ops) -> None:
    w = np.zeros((8, 64), np.float32)
    weight = _engine.pack(ops, [(w, "", [])])
    x = np.zeros((2, 64), np.float32)
    with pytest.raises(Exception, match="nothing to pack"):
        _engine.pack(ops, [])
    with pytest.raises(Exception, match="64 columns.*have 32"):
        _engine.pack(ops, [(w[:, :32], "", []), (w, "", [])])
    with pytest.raises(Exception, match="iq2_s"):
        _engine.pack(ops, [(np.zeros((8, 84), np.uint8), "iq2_s", [])])
    with pytest.raises(Exception, match="whole blocks of 18 bytes, got 19"):
        _engine.pack(ops, [(np.zeros((8, 19), np.uint8), "q4_0", [])])
    with pytest.raises(Exception, match="float32, float16 or bfloat16"):
        _engine.pack(ops, [(np.zeros((8, 64), np.int32), "", [])])
    with pytest.raises(Exception, match="row order of 3 entries for 8 rows"):
        _engine.pack(ops, [(w, "", [0, 1, 2])])
    with pytest.raises(Exception, match="row 8 in its row order"):
        _engine.pack(ops, [(w, "", [0, 1, 2, 3, 4, 5, 6, 8])])
    with pytest.raises(Exception, match="x has 63 columns, 64 are needed"):
        linear(ops, weight, np.zeros((2, 63), np.float32))
    with pytest.raises(Exception, match=r"out must be \[2, 8\]"):
        linear(ops, weight, x, out=np.zeros((2, 9), np.float32))
    with pytest.raises(Exception, match="bias has 9 elements, 8 are needed"):
        linear(ops, weight, x, bias=np.zeros(9, np.float32))
    with pytest.raises(Exception, match="needs norm_weight"):
        linear(ops, weight, x, prologue="rms_norm")
    with pytest.raises(Exception, match="gelu"):
        linear(ops, weight, x, prologue="gelu")
    with pytest.raises(TypeError):
        linear(ops, weight, np.zeros((2, 64), np.float64))
