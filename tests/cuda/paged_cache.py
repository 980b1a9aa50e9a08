"""A layer of a device's KV cache, and the kernels that read and write it, called by themselves on the emulator."""

from __future__ import annotations

import ctypes
from ctypes import c_float, c_int, c_size_t, c_void_p
from dataclasses import dataclass
from typing import Any

import torch
from emulator_library import load

DTYPES = {"f16": 1, "bf16": 2, "int8": 3, "fp8": 7}  # as in tensor/dtype.h
PARTITION = 128  # positions


class CacheFields(ctypes.Structure):
    _fields_ = [("k", c_void_p), ("v", c_void_p)] + [
        (name, c_int) for name in ("dtype", "block_size", "num_blocks", "kv_heads", "k_dim", "v_dim")
    ]


class AttentionFields(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("q", "out", "first_token", "n_tokens", "first_pos", "tables")),
        *((name, c_int) for name in ("num_rows", "width")),
        *((name, c_void_p) for name in ("group_rows", "group_sizes", "group_partitions")),
        *((name, c_int) for name in ("num_groups", "heads")),
        ("scale", c_float),
        ("window", c_int),
        ("softcap", c_float),
        ("sinks", c_void_p),
        *((name, c_int) for name in ("multiprocessors", "shared_bytes")),
        ("workspace", c_void_p),
        ("workspace_bytes", c_size_t),
    ]


class RopeFields(ctypes.Structure):
    _fields_ = [
        *((name, c_void_p) for name in ("q", "k", "v", "rope", "positions", "slots")),
        *((name, c_int) for name in ("num_tokens", "heads", "rotary_dim")),
        *((name, c_void_p) for name in ("q_norm", "k_norm")),
        ("together", c_int),
        ("eps", c_float),
    ]


def pointer(x: torch.Tensor | None) -> int | None:
    return None if x is None else x.data_ptr()


def ints(values: list[int]) -> torch.Tensor:
    return torch.tensor(values, dtype=torch.int32)


def call(name: str, *arguments: object) -> None:
    """Calls the entry point; what the kernel's launch refuses or the emulator finds is a RuntimeError."""
    error = ctypes.create_string_buffer(1000)
    if getattr(load("octavo_cuda_emulated"), name)(*arguments, error, c_int(1000)):
        raise RuntimeError(error.value.decode())


@dataclass
class PagedCache:
    """Blocks of [kv_heads, block_size, dim] elements, 8-bit ones followed by a scale for each slot."""

    dtype: str
    block_size: int
    num_blocks: int
    kv_heads: int
    k_dim: int
    v_dim: int

    def __post_init__(self) -> None:
        self.element = 1 if self.scaled else 2
        self.k, self.v = (
            torch.full((self.num_blocks, self.kv_heads, self._head_bytes(dim)), 255, dtype=torch.uint8)
            for dim in (self.k_dim, self.v_dim)
        )  # NaN in every float type

    @property
    def scaled(self) -> bool:
        return self.dtype in ("int8", "fp8")

    def _head_bytes(self, dim: int) -> int:
        return self.block_size * (dim * self.element + 4 * self.scaled)

    def fields(self) -> CacheFields:
        sizes = (self.block_size, self.num_blocks, self.kv_heads, self.k_dim, self.v_dim)
        return CacheFields(self.k.data_ptr(), self.v.data_ptr(), DTYPES[self.dtype], *sizes)

    def encode(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        """[..., dim] as the bytes of its elements and its scales."""
        if not self.scaled:
            kind = torch.float16 if self.dtype == "f16" else torch.bfloat16
            return x.to(kind).view(torch.uint8), torch.empty(0)
        largest = x.abs().amax(-1, keepdim=True)
        if self.dtype == "int8":
            codes = torch.round(x * (127 / largest)).to(torch.int8).view(torch.uint8)
            return codes, (largest / 127)[..., 0]
        codes = (x * (448 / largest)).to(torch.float8_e4m3fn).view(torch.uint8)
        return codes, (largest / 448 * 256)[..., 0]

    def decode(self, codes: torch.Tensor, scales: torch.Tensor) -> torch.Tensor:
        """What encode() keeps of x, in float64."""
        if self.dtype == "int8":
            return codes.view(torch.int8).double() * scales.double()[..., None]
        if self.dtype == "fp8":
            return codes.view(torch.float8_e4m3fn).double() * scales.double()[..., None] / 256
        return codes.view(torch.float16 if self.dtype == "f16" else torch.bfloat16).double()

    def parts(self, cache: torch.Tensor, dim: int) -> tuple[torch.Tensor, torch.Tensor]:
        """Views: bytes of the elements [num_blocks, kv_heads, block_size, bytes], scales [..., block_size]."""
        size = self.block_size * dim * self.element
        elements = cache[..., :size].view(self.num_blocks, self.kv_heads, self.block_size, dim * self.element)
        return elements, cache[..., size:].view(torch.float32)

    def store(self, slots: torch.Tensor, k: torch.Tensor, v: torch.Tensor) -> None:
        """Writes [tokens, kv_heads, dim]."""
        block, slot = slots // self.block_size, slots % self.block_size
        for cache, x in ((self.k, k), (self.v, v)):
            codes, scales = self.encode(x)
            elements, room = self.parts(cache, x.shape[-1])
            elements[block, :, slot] = codes
            if self.scaled:
                room[block, :, slot] = scales

    def rope_write(self, q: torch.Tensor, k: torch.Tensor, v: torch.Tensor, slots: list[int],
                   positions: list[int], rope: torch.Tensor | None, q_norm: torch.Tensor | None,
                   k_norm: torch.Tensor | None, together: bool, eps: float) -> None:  # fmt: skip
        at, to = ints(positions), ints(slots)
        rope_fields = RopeFields(
            *(pointer(x) for x in (q, k, v, rope, at, to)), q.shape[0], q.shape[1],
            0 if rope is None else rope.shape[1], pointer(q_norm), pointer(k_norm), together, eps,
        )  # fmt: skip
        call("trial_rope_write", ctypes.byref(rope_fields), ctypes.byref(self.fields()))

    def copy_blocks(self, copies: list[tuple[int, int, int]]) -> None:
        listed = ints([x for copy in copies for x in copy])
        call("trial_copy_blocks", c_void_p(listed.data_ptr()), len(copies), ctypes.byref(self.fields()))


@dataclass
class Device:
    """What the schedule of an attention depends on beside its rows. Its results must not."""

    multiprocessors: int = 4
    workspace: int = 1 << 22  # bytes
    shared_bytes: int = 100 << 10
    seed: int = 0  # of the order of blocks, warps and lanes


class Sequences:
    """Sequences whose keys and values lie scattered in a cache of NaN."""

    def __init__(self, lengths: list[int], heads: int, cache: tuple[str, int, int, int, int], *,
                 shared: int = 0, seed: int = 0) -> None:  # fmt: skip
        dtype, block_size, kv_heads, k_dim, v_dim = cache
        g = torch.Generator().manual_seed(seed)
        blocks = [-(-n // block_size) for n in lengths]
        self.cache = PagedCache(dtype, block_size, sum(blocks) + 2, kv_heads, k_dim, v_dim)
        self.heads, self.lengths = heads, lengths
        order = torch.randperm(sum(blocks) + 2, generator=g).tolist()
        self.tables = torch.full((len(lengths), max(blocks) + 1), 2**31 - 1, dtype=torch.int32)
        self.k: list[torch.Tensor] = []  # [length, kv_heads, k_dim] as the cache keeps it, float64
        self.v: list[torch.Tensor] = []
        self.q = [torch.randn(n, heads, k_dim, generator=g) for n in lengths]
        for s, n in enumerate(lengths):
            table = [order.pop() for _ in range(blocks[s])]
            # Slots of very different sizes, as the scales of 8-bit caches are for.
            k, v = (
                torch.randn(n, kv_heads, dim, generator=g)
                * torch.exp2(torch.randn(n, kv_heads, 1, generator=g))
                for dim in (k_dim, v_dim)
            )
            kept = [self.cache.decode(*self.cache.encode(x)) for x in (k, v)]
            if s and shared:
                table[: shared // block_size] = self.tables[0, : shared // block_size].tolist()
                kept[0][:shared], kept[1][:shared] = self.k[0][:shared], self.v[0][:shared]
            self.tables[s, : len(table)] = ints(table)
            own = torch.arange(shared if s else 0, n)
            slots = self.tables[s].long()[own // block_size] * block_size + own % block_size
            self.cache.store(slots, k[own], v[own])
            self.k.append(kept[0])
            self.v.append(kept[1])

    def attend(self, rows: list[tuple[int, int, int]], device: Device | None = None, *, window: int = 0,
               softcap: float = 0.0, sinks: torch.Tensor | None = None,
               groups: list[tuple[list[int], int]] | None = None) -> list[torch.Tensor]:  # fmt: skip
        """Outputs of the queries [start, end) of each (sequence, start, end); groups: (rows, partitions)."""
        device, groups = device or Device(), groups or []
        lengths = [end - start for _, start, end in rows]
        q = torch.cat([self.q[s][start:end] for s, start, end in rows])
        out = torch.full((len(q), self.heads, self.cache.v_dim), torch.nan)
        tables = self.tables[[s for s, _, _ in rows]].contiguous()
        if window and not groups:  # blocks before the window may be gone
            for r, (_, start, _) in enumerate(rows):
                tables[r, : max(0, start - window + 1) // self.cache.block_size] = -1
        firsts = ints([sum(lengths[:r]) for r in range(len(rows))])
        counts, starts = ints(lengths), ints([start for _, start, _ in rows])
        members, sizes = ints([r for g, _ in groups for r in g]), ints([len(g) for g, _ in groups])
        partitions = ints([p for _, p in groups])
        workspace = torch.full((device.workspace // 4,), torch.nan)
        fields: list[Any] = [pointer(x) for x in (q, out, firsts, counts, starts, tables)]
        fields += [len(rows), tables.shape[1], *(pointer(x) for x in (members, sizes, partitions))]
        fields += [len(groups), self.heads, self.cache.k_dim**-0.5, window, softcap, pointer(sinks)]
        fields += [device.multiprocessors, device.shared_bytes, workspace.data_ptr(), device.workspace]
        emulator = load("octavo_cuda_emulated")
        emulator.octavo_emulator_set_seed(device.seed)
        try:
            call(
                "trial_attention",
                ctypes.byref(AttentionFields(*fields)),
                ctypes.byref(self.cache.fields()),
            )
        finally:
            emulator.octavo_emulator_set_seed(0)
        return list(out.split(lengths))

    def reference(self, row: tuple[int, int, int], *, window: int = 0, softcap: float = 0.0,
                  sinks: torch.Tensor | None = None) -> torch.Tensor:  # fmt: skip
        """The same in float64 from what the cache keeps and queries as tensor cores read them."""
        s, start, end = row
        group = self.heads // self.cache.kv_heads
        k, v = (x[s][:end].repeat_interleave(group, 1) for x in (self.k, self.v))
        read_as = torch.bfloat16 if self.cache.dtype == "bf16" else torch.float16
        q = self.q[s][start:end].to(read_as).double()
        scores = torch.einsum("qhd,khd->hqk", q, k) * self.cache.k_dim**-0.5
        if softcap:
            scores = softcap * torch.tanh(scores / softcap)
        query, key = torch.arange(start, end)[:, None], torch.arange(end)
        visible = (key <= query) & (key > query - (window or end))
        scores = scores.masked_fill(~visible, -torch.inf)
        if sinks is not None:
            scores = torch.cat([scores, sinks.double()[:, None, None].expand(-1, end - start, 1)], dim=-1)
        return torch.einsum("hqk,khd->qhd", scores.softmax(-1)[..., :end], v)
