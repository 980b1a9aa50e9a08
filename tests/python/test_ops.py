"""octavo.ops: tensors of torch and NumPy, shared and never copied, and errors that name the argument."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch

from octavo import ops
from octavo.errors import InvalidArgumentError, OctavoError


def arguments() -> dict[str, Any]:
    """A valid paged_attention call: two sequences of 20 and 3 tokens, three queries."""
    return {
        "q": torch.randn(3, 4, 32),
        "k_cache": torch.randn(6, 2, 32, 16).half(),
        "v_cache": torch.randn(6, 2, 16, 32).half(),
        "block_tables": torch.tensor([[0, 3], [5, 0]], dtype=torch.int32),
        "seq_lens": torch.tensor([20, 3]),
        "query_lens": torch.tensor([1, 2]),
        "scale": 0.2,
    }


def test_numpy_arrays_give_the_bits_of_torch_tensors() -> None:
    args = arguments()
    want = ops.paged_attention(**args)
    got = ops.paged_attention(
        **{name: value.numpy() if isinstance(value, torch.Tensor) else value for name, value in args.items()}
    )
    assert isinstance(want, torch.Tensor)
    assert isinstance(got, np.ndarray)
    assert np.array_equal(got, want.numpy())


def test_lists_serve_as_indices_and_one_query_is_the_default() -> None:
    args = arguments() | {"q": torch.randn(2, 4, 32), "seq_lens": [20, 3]}
    del args["query_lens"]
    want = ops.paged_attention(**args, query_lens=[1, 1])
    assert torch.equal(ops.paged_attention(**args), want)


def test_results_go_into_the_callers_memory() -> None:
    args = arguments()
    out = torch.empty(3, 4, 32)
    assert ops.paged_attention(**args, out=out) is out
    assert torch.equal(out, ops.paged_attention(**args))
    x = np.random.default_rng(0).standard_normal((3, 8), dtype=np.float32)
    assert ops.silu_and_mul(x).shape == (3, 4)
    normed = ops.rms_norm(x, np.ones(8, np.float32), 1e-6)
    assert ops.rms_norm(x, np.ones(8, np.float32), 1e-6, out=x) is x
    assert np.array_equal(x, normed)


def test_the_cache_is_written_in_place() -> None:
    k_cache, v_cache = np.zeros((2, 1, 8, 8), np.float16), np.zeros((2, 1, 8, 8), np.float16)
    k = np.arange(8, dtype=np.float32).reshape(1, 1, 8)
    ops.write_kv(k, -k, k_cache, v_cache, [11])
    assert np.array_equal(k_cache[1, 0, :, 3], k[0, 0])
    assert np.array_equal(v_cache[1, 0, 3], -k[0, 0])
    ops.copy_blocks(k_cache, v_cache, [(1, 0)])
    assert np.array_equal(k_cache[0], k_cache[1])


WRONG: dict[str, Callable[[torch.Tensor], Any]] = {
    "not contiguous": lambda t: torch.stack([t, t], -1)[..., 0],
    "requires grad": lambda t: t.float().requires_grad_(),
    "device": lambda t: t.to("meta"),
    "must be": lambda t: t.to(torch.complex64),
    "must be a torch tensor or a NumPy array": lambda t: object(),
    "dimensions": lambda t: t[None],
}


@pytest.mark.parametrize("why", WRONG)
@pytest.mark.parametrize(
    "name", ["q", "k_cache", "v_cache", "block_tables", "seq_lens", "query_lens", "sinks", "out"]
)
def test_a_tensor_that_does_not_fit_is_named(name: str, why: str) -> None:
    args = arguments() | {"sinks": torch.zeros(4), "out": torch.empty(3, 4, 32)}
    args[name] = WRONG[why](args[name])
    with pytest.raises(InvalidArgumentError, match=why) as error:
        ops.paged_attention(**args)
    assert error.value.param == name
    assert str(error.value).startswith(name)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("q", torch.randn(4, 4, 32)),  # blamed on query_lens below
        ("q", torch.randn(3, 5, 32)),
        ("q", torch.randn(3, 4, 16)),
        ("k_cache", torch.randn(6, 2, 32, 12).half()),
        ("v_cache", torch.randn(6, 2, 16, 32)),
        ("v_cache", torch.randn(6, 2, 8, 32).half()),
        ("block_tables", torch.tensor([[0, 6], [5, 0]], dtype=torch.int32)),
        ("block_tables", torch.tensor([[0, -1], [5, 0]], dtype=torch.int32)),
        ("block_tables", torch.tensor([[0], [5]], dtype=torch.int32)),
        ("seq_lens", [20]),
        ("seq_lens", [20, -1]),
        ("query_lens", [1, 4]),
        ("query_lens", [1, 1]),
        ("window", -1),
        ("softcap", -1.0),
        ("sinks", torch.zeros(3)),
        ("out", torch.empty(3, 4, 16)),
        ("scale", "big"),
        ("window", 0.5),
        ("softcap", None),
        ("prefix_groups", [5]),
        ("prefix_groups", [([0.5], 0)]),
        ("prefix_groups", [([0, 2], 0)]),
        ("prefix_groups", [([0], 1)]),
        ("prefix_groups", [([0], 0), ([0], 0)]),
    ],
)
def test_a_value_that_does_not_fit_is_named(name: str, value: object) -> None:
    with pytest.raises(InvalidArgumentError) as error:
        ops.paged_attention(**(arguments() | {name: value}))
    accused = "query_lens" if isinstance(value, torch.Tensor) and value.shape == (4, 4, 32) else name
    assert error.value.param == accused


def test_rows_with_different_blocks_share_no_prefix() -> None:
    cache = torch.zeros(20, 1, 8, 16)
    tables = torch.arange(18, dtype=torch.int32).reshape(2, 9)
    with pytest.raises(InvalidArgumentError, match="blocks differ") as error:
        ops.paged_attention(
            torch.randn(2, 1, 8), cache, cache.transpose(2, 3).contiguous(), tables, [130, 130],
            scale=1.0, prefix_groups=[([0, 1], 1)],
        )  # fmt: skip
    assert error.value.param == "prefix_groups"


def test_other_ops_name_what_does_not_fit() -> None:
    x, cache = torch.randn(3, 8), torch.zeros(2, 1, 8, 8)
    k = torch.randn(2, 1, 8)
    table = ops.rope_table(4, 8)
    read_only = np.zeros((3, 8), np.float32)
    read_only.flags.writeable = False
    cases: list[tuple[str, Callable[[], object]]] = [
        ("x", lambda: ops.rms_norm(x.double(), torch.ones(8), 1e-5)),
        ("weight", lambda: ops.rms_norm(x, torch.ones(7), 1e-5)),
        ("out", lambda: ops.rms_norm(x, torch.ones(8), 1e-5, out=torch.empty(2, 8))),
        ("out", lambda: ops.rms_norm(x, torch.ones(8), 1e-5, out=read_only)),
        ("x", lambda: ops.silu_and_mul(torch.randn(3, 7))),
        ("x", lambda: ops.silu_and_mul(x.T)),
        ("positions", lambda: ops.rope(k, k.clone(), [0, 4], table)),
        ("positions", lambda: ops.rope(k, k.clone(), [0], table)),
        ("rope_table", lambda: ops.rope(k, k.clone(), [0, 1], ops.rope_table(4, 10))),
        ("k", lambda: ops.rope(k, torch.randn(2, 1, 6), [0, 1], table)),
        ("slot_mapping", lambda: ops.write_kv(k, k, cache, cache, [0, 16])),
        ("slot_mapping", lambda: ops.write_kv(k, k, cache, cache, [0])),
        ("v", lambda: ops.write_kv(k, torch.randn(2, 2, 8), cache, cache, [0, 1])),
        ("k", lambda: ops.write_kv(torch.randn(2, 1, 4), k, cache, cache, [0, 1])),
        ("copies", lambda: ops.copy_blocks(cache, cache.clone(), [(0, 2)])),
        ("copies", lambda: ops.copy_blocks(cache, cache.clone(), [(0, 1, 9)])),
        ("copies", lambda: ops.copy_blocks(cache, cache.clone(), [(0,)])),
        ("copies", lambda: ops.copy_blocks(cache, cache.clone(), [(0, 1, 2, 3)])),
        ("copies", lambda: ops.copy_blocks(cache, cache.clone(), [(0.5, 1)])),
        ("copies", lambda: ops.copy_blocks(cache, cache.clone(), [(2**70, 1)])),
        ("copies", lambda: ops.copy_blocks(cache, cache.clone(), [1])),
        ("x", lambda: ops.rms_norm([1, 2], torch.ones(2), 1e-5)),
        ("eps", lambda: ops.rms_norm(x, torch.ones(8), "small")),
        ("positions", lambda: ops.rope(k, k.clone(), [0.5, 1], table)),
        ("positions", lambda: ops.rope(k, k.clone(), [0, 2**70], table)),
        ("packed", lambda: ops.linear(x, x)),
        ("rotary_dim", lambda: ops.rope_table(4, 7)),
        ("inv_freq", lambda: ops.rope_table(4, 8, inv_freq=[1.0])),
        ("threads", lambda: ops.Context(-1)),
        ("isa", lambda: ops.Context(1, "sse9")),
    ]
    for name, call in cases:
        with pytest.raises(OctavoError, match=".") as error:
            call()
        assert getattr(error.value, "param", None) == name, error.value


def test_rope_table_matches_its_definition() -> None:
    table = ops.rope_table(100, 8, 500.0)
    angle = np.arange(100)[:, None] * 500.0 ** -(np.arange(0, 8, 2) / 8)
    np.testing.assert_allclose(table, np.hstack([np.cos(angle), np.sin(angle)]), atol=1e-7)
    scaled = ops.rope_table(100, 8, inv_freq=[1.0, 0.5, 0.25, 0.125])
    np.testing.assert_allclose(scaled[3, :4], np.cos([3, 1.5, 0.75, 0.375]), atol=1e-7)
    with pytest.raises(ValueError, match="rotary_dim"):
        ops.rope_table(4, 7)
    with pytest.raises(ValueError, match="inv_freq"):
        ops.rope_table(4, 8, inv_freq=[1.0])


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_packed_linear_equals_torch(dtype: torch.dtype) -> None:
    weight, bias = torch.randn(70, 96).to(dtype), torch.randn(70)
    packed = ops.pack_linear(weight)
    assert (packed.n, packed.k) == (70, 96)
    assert np.array_equal(packed.dequantize(), weight.float().numpy())
    x = torch.randn(2, 5, 96)
    want = torch.nn.functional.linear(x.double(), weight.double(), bias.double())
    got = ops.linear(x, packed, bias)
    # With AVX512_BF16, bf16 weights meet activations rounded to bf16.
    atol = 2**-8 * float((x.abs() @ weight.float().abs().T).max()) if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(got.double(), want, rtol=1e-5, atol=atol)
    assert torch.equal(ops.linear(x[1, 2], packed, bias), got[1, 2])
    out = np.empty((2, 5, 70), np.float32)
    assert ops.linear(x.numpy(), packed, bias.numpy(), out) is out
    assert np.array_equal(out, got.numpy())


def test_packed_linear_reads_gguf_blocks() -> None:
    gguf = pytest.importorskip("gguf")
    weight = np.random.default_rng(0).standard_normal((48, 64), dtype=np.float32)
    blocks = gguf.quants.quantize(weight, gguf.GGMLQuantizationType.Q8_0)
    packed = ops.pack_linear(blocks, "q8_0")
    assert packed.format == "q8_0"
    values = gguf.quants.dequantize(blocks, gguf.GGMLQuantizationType.Q8_0)
    assert np.array_equal(packed.dequantize(), values)
    x = np.random.default_rng(1).standard_normal((3, 64), dtype=np.float32)
    np.testing.assert_allclose(ops.linear(x, packed), x @ values.T, atol=0.3)


def test_linear_names_what_does_not_fit() -> None:
    weight, x = torch.randn(16, 32), torch.randn(3, 32)
    packed = ops.pack_linear(weight)
    cases: list[tuple[str, Callable[[], object]]] = [
        ("weight", lambda: ops.pack_linear(weight.T)),
        ("weight", lambda: ops.pack_linear(weight.requires_grad_())),
        ("weight", lambda: ops.pack_linear(torch.zeros(4, 32, dtype=torch.int8))),
        ("weight", lambda: ops.pack_linear(torch.zeros(4, 35, dtype=torch.uint8), "q8_0")),
        ("format", lambda: ops.pack_linear(torch.zeros(4, 34, dtype=torch.uint8), "q9_9")),
        ("x", lambda: ops.linear(x.half(), packed)),
        ("x", lambda: ops.linear(torch.randn(3, 31), packed)),
        ("bias", lambda: ops.linear(x, packed, torch.zeros(15))),
        ("out", lambda: ops.linear(x, packed, out=torch.empty(3, 15))),
    ]
    for name, call in cases:
        with pytest.raises(OctavoError, match=".") as error:
            call()
        assert getattr(error.value, "param", None) == name, error.value
