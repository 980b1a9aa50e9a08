"""Ragged batches in a paged cache, and what attention over them must give."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import torch

from octavo import ops

DTYPES = {"f32": torch.float32, "f16": torch.float16, "bf16": torch.bfloat16}


@dataclass
class Paged:
    """Sequences whose keys and values lie scattered in a cache full of NaN."""

    heads: int
    kv_heads: int
    k_dim: int
    v_dim: int
    block_size: int
    dtype: torch.dtype
    seq_lens: list[int]
    shared: int = 0  # leading positions that all sequences have in common, a multiple of the block size
    seed: int = 0
    k: list[torch.Tensor] = field(init=False)  # per sequence [len, kv_heads, k_dim]
    v: list[torch.Tensor] = field(init=False)

    def __post_init__(self) -> None:
        g = torch.Generator().manual_seed(self.seed)
        blocks = [-(-n // self.block_size) for n in self.seq_lens]
        num_blocks = sum(blocks) + 3
        order = torch.randperm(num_blocks, generator=g).tolist()
        self.k_cache = torch.full(
            (num_blocks, self.kv_heads, self.k_dim, self.block_size), torch.nan, dtype=self.dtype
        )
        self.v_cache = torch.full(
            (num_blocks, self.kv_heads, self.block_size, self.v_dim), torch.nan, dtype=self.dtype
        )
        width = max(blocks) + 1
        self.tables = torch.full((len(blocks), width), 2**31 - 1, dtype=torch.int32)  # must not be read
        self.k, self.v = [], []
        for s, n in enumerate(self.seq_lens):
            table = [order.pop() for _ in range(blocks[s])]
            k = torch.randn(n, self.kv_heads, self.k_dim, generator=g)
            v = torch.randn(n, self.kv_heads, self.v_dim, generator=g)
            if s and self.shared:
                common = self.shared // self.block_size
                table[:common] = self.tables[0, :common].tolist()
                k[: self.shared], v[: self.shared] = self.k[0][: self.shared], self.v[0][: self.shared]
            self.tables[s, : len(table)] = torch.tensor(table, dtype=torch.int32)
            position = torch.arange(n)
            slots = self.tables[s].long()[position // self.block_size] * self.block_size
            ops.write_kv(k, v, self.k_cache, self.v_cache, slots + position % self.block_size)
            self.k.append(k)
            self.v.append(v)
        self.q = [torch.randn(n, self.heads, self.k_dim, generator=g) for n in self.seq_lens]

    def attend(
        self, seqs: list[int], starts: list[int], ends: list[int], **kwargs: object
    ) -> list[torch.Tensor]:
        """Outputs of the queries at positions [start, end) of each sequence, in one call."""
        lens = [e - s for s, e in zip(starts, ends, strict=True)]
        q = torch.cat([self.q[i][s:e] for i, s, e in zip(seqs, starts, ends, strict=True)])
        kwargs.setdefault("scale", self.k_dim**-0.5)
        out = ops.paged_attention(
            q, self.k_cache, self.v_cache, self.tables[seqs].contiguous(), ends, lens, **kwargs
        )
        return list(out.split(lens))

    def reference(
        self, s: int, *, scale: float | None = None, window: int = 0, softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """All positions of sequence `s` in float64, from the keys and values as the cache rounds them."""
        group = self.heads // self.kv_heads
        k = self.k[s].to(self.dtype).double().repeat_interleave(group, 1)
        v = self.v[s].to(self.dtype).double().repeat_interleave(group, 1)
        scores = torch.einsum("qhd,khd->hqk", self.q[s].double(), k) * (scale or self.k_dim**-0.5)
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        position = torch.arange(len(k))
        visible = position[None, :] <= position[:, None]
        if window:
            visible &= position[None, :] > position[:, None] - window
        scores = scores.masked_fill(~visible, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, len(k), 1)], -1)
        weights = scores.softmax(-1)[..., : len(k)]
        return torch.einsum("hqk,khd->qhd", weights, v)

    def rounded_reference(
        self, s: int, *, scale: float | None = None, window: int = 0, softcap: float = 0.0,
        sinks: torch.Tensor | None = None,
    ) -> torch.Tensor:  # fmt: skip
        """The same with scaled queries, keys, values and the probabilities of each partition of 128 rounded to bf16."""
        group = self.heads // self.kv_heads
        k = bf16(self.k[s].to(self.dtype)).repeat_interleave(group, 1)
        v = bf16(self.v[s].to(self.dtype)).repeat_interleave(group, 1)
        factor = torch.tensor(scale or self.k_dim**-0.5) * (1 / softcap if softcap else math.log2(math.e))
        scores = torch.einsum("qhd,khd->hqk", bf16(self.q[s] * factor), k)
        if softcap:
            scores = softcap * math.log2(math.e) * torch.tanh(scores)
        position = torch.arange(len(k))
        visible = position[None, :] <= position[:, None]
        if window:
            visible &= position[None, :] > position[:, None] - window
        scores = scores.masked_fill(~visible, -torch.inf)
        parts = [
            (part.amax(-1, keepdim=True).clamp(min=-1e30), part, values)
            for part, values in zip(scores.split(128, -1), v.split(128), strict=True)
        ]
        top = torch.stack([m for m, _, _ in parts]).amax(0)
        total, out = 0, 0
        for m, part, values in parts:
            weights = torch.exp2(part - m)
            total = total + weights.sum(-1, keepdim=True) * torch.exp2(m - top)
            out = out + torch.einsum("hqk,khd->hqd", bf16(weights.float()), values) * torch.exp2(m - top)
        if sinks is not None:
            total = total + torch.exp2(sinks.double()[:, None, None] * math.log2(math.e) - top)
        return (out / total).transpose(0, 1)


def bf16(x: torch.Tensor) -> torch.Tensor:
    return x.bfloat16().double()


def chunks(length: int, size: int) -> list[tuple[int, int]]:
    return [(s, min(s + size, length)) for s in range(0, length, size)]
