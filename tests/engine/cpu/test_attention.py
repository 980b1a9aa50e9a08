"""Paged attention against float64, and the same bits however the work is cut."""

from __future__ import annotations

import random

import pytest
import torch
from paged_reference import DTYPES, Paged, chunks
from torch.nn.functional import scaled_dot_product_attention

from octavo import ops
from octavo.errors import OctavoError

ISAS = ["baseline", "avx2", "avx512vnni", "avx512bf16"]


def context(isa: str, threads: int = 1) -> ops.Context:
    try:
        return ops.Context(threads, isa)
    except OctavoError:
        pytest.skip(f"this machine has no {isa}")


def close(got: torch.Tensor, want: torch.Tensor) -> None:
    torch.testing.assert_close(got.double(), want, rtol=2e-5, atol=4e-6)


def check(
    on: ops.Context, got: torch.Tensor, batch: Paged, s: int, start: int = 0, **options: object
) -> None:
    """Queries of sequence `s` from `start` on. In bf16 what lies between two numbers may fall to either."""
    if on.isa != "avx512bf16" or batch.dtype == torch.float32:
        return close(got, batch.reference(s, **options)[start:])
    want = batch.rounded_reference(s, **options)[start:]
    off = (got.double() - want).abs()
    assert off.max() <= 0.01
    assert (off > 4e-6 + 2e-5 * want.abs()).double().mean() <= 0.1
    torch.testing.assert_close(got.double(), batch.reference(s, **options)[start:], rtol=0.05, atol=0.05)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("block_size", [8, 16, 32])
def test_ragged_prefill_and_decode_equal_the_reference(isa: str, dtype: str, block_size: int) -> None:
    lens = [1, 7, 129, 300, 128, 33]
    batch = Paged(6, 2, 64, 64, block_size, DTYPES[dtype], lens)
    starts = [0, 3, 0, 299, 0, 32]
    on = context(isa, 2)
    outs = batch.attend(list(range(6)), starts, lens, context=on)
    for s, out in enumerate(outs):
        check(on, out, batch, s, starts[s])


def test_prefill_equals_scaled_dot_product_attention() -> None:
    batch = Paged(4, 4, 64, 64, 16, torch.float32, [200])
    want = scaled_dot_product_attention(
        *(x.double().transpose(0, 1) for x in (batch.q[0], batch.k[0], batch.v[0])), is_causal=True
    )
    close(batch.attend([0], [0], [200])[0], want.transpose(0, 1))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "k_dim", "v_dim"),
    [(9, 3, 64, 64), (8, 1, 128, 128), (7, 7, 32, 32), (8, 2, 96, 80), (4, 1, 256, 256), (10, 2, 40, 24),
     (3, 1, 20, 13), (14, 2, 64, 72), (32, 1, 48, 16)],
)  # fmt: skip
def test_head_counts_and_sizes(isa: str, heads: int, kv_heads: int, k_dim: int, v_dim: int) -> None:
    batch = Paged(heads, kv_heads, k_dim, v_dim, 16, torch.float16, [150, 20])
    on = context(isa)
    outs = batch.attend([0, 1], [0, 19], [150, 20], context=on)
    check(on, outs[0], batch, 0)
    check(on, outs[1], batch, 1, 19)


VARIANTS = {
    "window": {"window": 50},
    "window of one": {"window": 1},
    "window past a partition": {"window": 140},
    "softcap": {"softcap": 3.0},
    "softcap and window": {"softcap": 30.0, "window": 129},
    "scale": {"scale": 0.7},
    "sinks": {"sinks": torch.tensor([0.5, -4.0, 9.0, 0.0, 2.0, -90.0])},
    "all": {"sinks": torch.tensor([0.5, -4.0, 9.0, 0.0, 2.0, 1e4]), "window": 77, "softcap": 5.0},
}


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize("variant", VARIANTS)
@pytest.mark.parametrize("dtype", [pytest.param("f32", marks=pytest.mark.slow), "f16"])
def test_window_softcap_sinks_and_scale(isa: str, variant: str, dtype: str) -> None:
    batch = Paged(6, 3, 32, 32, 16, DTYPES[dtype], [300, 90])
    on = context(isa)
    outs = batch.attend([0, 1], [0, 89], [300, 90], context=on, **VARIANTS[variant])
    check(on, outs[0], batch, 0, **VARIANTS[variant])
    check(on, outs[1], batch, 1, 89, **VARIANTS[variant])


@pytest.mark.parametrize("seed", range(6))
def test_random_batches_equal_the_reference(seed: int) -> None:
    rng = random.Random(seed)
    lens = [rng.randint(1, 420) for _ in range(rng.randint(1, 9))]
    batch = Paged(*rng.choice([(4, 2), (9, 3), (5, 1)]), 32, 40, rng.choice([8, 16, 32]),
                  rng.choice(list(DTYPES.values())), lens, seed=seed)  # fmt: skip
    options = {"window": rng.choice([0, rng.randint(1, 300)]), "softcap": rng.choice([0.0, 8.0])}
    starts = [rng.choice([0, n - 1, rng.randrange(n)]) for n in lens]
    on = ops.Context(2)
    outs = batch.attend(list(range(len(lens))), starts, lens, context=on, **options)
    for s, out in enumerate(outs):
        check(on, out, batch, s, starts[s], **options)


def test_large_scores_neither_overflow_nor_vanish() -> None:
    batch = Paged(2, 1, 32, 32, 16, torch.float32, [260])
    out = batch.attend([0], [0], [260], scale=100.0)[0]
    torch.testing.assert_close(out.double(), batch.reference(0, scale=100.0), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "variant",
    [
        {},
        {"window": 100},
        *(pytest.param(v, marks=pytest.mark.slow) for v in ({"softcap": 4.0}, {"sinks": torch.arange(6.0)})),
    ],
)
@pytest.mark.parametrize("dtype", [pytest.param("f32", marks=pytest.mark.slow), "f16"])
def test_same_bits_however_a_prompt_is_cut(isa: str, variant: dict[str, object], dtype: str) -> None:
    n = 401
    batch = Paged(6, 2, 32, 32, 16, DTYPES[dtype], [n])
    one = context(isa)
    want = batch.attend([0], [0], [n], context=one, **variant)[0]
    for size, threads in [(1, 1), (3, 2), (16, 1), (50, 3), (128, 2), (n, 4)]:
        pool = context(isa, threads)
        got = torch.cat([batch.attend([0], [s], [e], context=pool, **variant)[0] for s, e in chunks(n, size)])
        assert torch.equal(got, want), f"chunks of {size} with {threads} threads"


@pytest.mark.parametrize("isa", ISAS)
def test_same_bits_alone_and_in_company(isa: str) -> None:
    lens = [1, 30, 700, 128, 257, 64, 5, 300]
    batch = Paged(9, 3, 64, 64, 16, torch.float16, lens)
    starts = [0, 29, 699, 0, 250, 10, 4, 299]
    alone = [batch.attend([s], [starts[s]], [n], context=context(isa))[0] for s, n in enumerate(lens)]
    for threads in (1, 2, 5):
        pool = context(isa, threads)
        for order in (list(range(8)), [7, 2, 0, 5, 3, 1, 6, 4], [2, 4]):
            outs = batch.attend(order, [starts[s] for s in order], [lens[s] for s in order], context=pool)
            assert all(torch.equal(out, alone[s]) for s, out in zip(order, outs, strict=True))


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    ("heads", "kv_heads", "dtype", "window"),
    [
        (9, 3, "f16", 0),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in (
                (10, 10, "f16", 0),
                (40, 5, "f16", 0),
                (26, 2, "f16", 0),
                (9, 3, "f32", 0),
                (9, 3, "f16", 200),
            )
        ),
    ],
)
def test_same_bits_with_heads_together(isa: str, heads: int, kv_heads: int, dtype: str, window: int) -> None:
    """Where there is enough to do, neighbouring KV heads are worked on together, in a long sequence piece by piece."""
    lens = [*range(100, 160, 6), 1100]
    batch = Paged(heads, kv_heads, 32, 32, 16, DTYPES[dtype], lens)
    one, pool = context(isa), context(isa, 2)
    every = list(range(len(lens)))
    alone = [batch.attend([s], [lens[s] - 1], [lens[s]], context=one, window=window)[0] for s in every[:-1]]
    outs = batch.attend(every[:-1], [n - 1 for n in lens[:-1]], lens[:-1], context=pool, window=window)
    assert all(torch.equal(out, alone[s]) for s, out in enumerate(outs))
    long = [batch.attend(every[-1:], [1099], [1100], context=on, window=window)[0] for on in (one, pool)]
    assert torch.equal(long[0], long[1])
    check(pool, outs[3], batch, 3, lens[3] - 1, window=window)
    check(pool, long[1], batch, len(lens) - 1, 1099, window=window)


@pytest.mark.parametrize("isa", ISAS)
@pytest.mark.parametrize(
    "variant", [{}, pytest.param({"window": 200}, marks=pytest.mark.slow), {"window": 500, "softcap": 4.0}]
)
@pytest.mark.parametrize("partitions", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_same_bits_with_and_without_prefix_groups(isa: str, variant: dict[str, int], partitions: int) -> None:
    lens = [300, 270, 511, 260, 420]
    starts = [299, 256, 400, 257, 390]
    batch = Paged(6, 2, 64, 64, 16, torch.float16, lens, shared=256)
    rows = list(range(5))
    want = batch.attend(rows, starts, lens, context=context(isa), **variant)
    for threads in (1, 2, 6):
        for groups in (
            [(rows, partitions)],
            [([4, 1], partitions), ([0, 2], 1)],
            [([3], partitions)],
            [([], 1)],
        ):
            got = batch.attend(
                rows, starts, lens, context=context(isa, threads), prefix_groups=groups, **variant
            )
            assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    for s in rows:
        check(context(isa), want[s], batch, s, starts[s], **variant)


def test_many_rows_share_a_prefix() -> None:
    lens = [256 + 1 + i for i in range(70)]
    batch = Paged(9, 3, 32, 32, 16, torch.bfloat16, lens, shared=256)
    rows, starts = list(range(70)), [n - 1 for n in lens]
    want = batch.attend(rows, starts, lens, context=ops.Context(1))
    got = batch.attend(rows, starts, lens, context=ops.Context(2), prefix_groups=[(rows, 2)])
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))
    check(ops.Context(1), got[69], batch, 69, lens[69] - 1)


def test_a_later_infinite_value_does_not_touch_earlier_queries() -> None:
    batch = Paged(6, 2, 32, 32, 16, torch.float16, [40])
    want = batch.attend([0], [0], [30])[0]
    table = batch.tables[0].long()
    for position, value in ((30, torch.inf), (31, torch.nan)):
        batch.v_cache[table[position // 16], :, position % 16] = value
        batch.k_cache[table[position // 16], :, :, position % 16] = value
    got = batch.attend([0], [0], [40])[0]
    assert torch.equal(got[:30], want)
    assert not torch.isfinite(got[30:]).any()


def test_values_before_the_window_may_be_anything() -> None:
    batch = Paged(6, 2, 32, 32, 16, torch.float16, [300])
    want = batch.attend([0], [290], [300], window=100)[0]
    stale = batch.tables[0, :11].long()
    batch.v_cache[stale], batch.k_cache[stale] = torch.nan, torch.nan
    batch.tables[0, :11] = -1
    assert torch.equal(batch.attend([0], [290], [300], window=100)[0], want)


def test_empty_rows_take_part() -> None:
    batch = Paged(4, 2, 32, 32, 16, torch.float32, [20, 40])
    outs = batch.attend([0, 1], [20, 30], [20, 40])
    assert outs[0].shape == (0, 4, 32)
    close(outs[1], batch.reference(1)[30:])
