"""The engine's kernels on torch tensors or NumPy arrays, without a copy.

Activations are float32; the paged key-value cache is float32, float16 or bfloat16. One layer's cache is two tensors::

    k_cache  [num_blocks, kv_heads, k_dim, block_size]  on a GPU [num_blocks, kv_heads, block_size, k_dim]
    v_cache  [num_blocks, kv_heads, block_size, v_dim]

with ``block_size`` 8, 16 or 32. A *slot* is ``block * block_size + offset``. A sequence's block table lists the blocks
that hold its positions in order, so position ``p`` lies in slot
``block_tables[s, p // block_size] * block_size + p % block_size`` (PagedAttention, Kwon et al., SOSP 2023).

Every element of a result depends on its own row alone: neither the other sequences of a call, nor how a prompt is cut
into calls, nor the number of threads changes a bit of it.

A tensor that is not contiguous, on another device, of another dtype or that requires grad raises
:class:`octavo.errors.InvalidArgumentError` naming the argument. Index arguments (``positions``, ``slot_mapping``,
``seq_lens``, ``query_lens``) are int32 or int64 and may be plain lists.

On a GPU. The first tensor of a call decides the device; all others lie there too, and outputs are made there. The
CUDA backend is loaded at the first such call, see docs/cuda.md. Tensors are taken by DLPack. Work goes into the
caller's stream, torch's current one (or the one of the :class:`Context`), and nothing waits for it, so that errors of
the GPU are raised by later calls, as with torch; only :func:`pack_linear`, and a call that needs more memory to work
in than any before, wait. The cache is float16 or bfloat16 there. ``seq_lens`` and ``query_lens`` decide what is
launched and are given in host memory; ``positions``, ``slot_mapping`` and ``block_tables`` may be given there, where
they are checked, or as int32 on the GPU, where they are taken at their word. Calls cannot be recorded in a CUDA graph.
"""

from __future__ import annotations

import contextlib
import functools
import operator
import sys
import threading
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from octavo import _engine, checks
from octavo._engine import PackedWeight
from octavo.checks import invalid
from octavo.errors import InvalidArgumentError

if TYPE_CHECKING:
    import torch

Tensor: TypeAlias = "torch.Tensor | np.ndarray[Any, Any]"
Indices: TypeAlias = "torch.Tensor | np.ndarray[Any, Any] | Sequence[int]"

__all__ = [
    "Context",
    "PackedWeight",
    "copy_blocks",
    "linear",
    "pack_linear",
    "paged_attention",
    "rms_norm",
    "rope",
    "rope_table",
    "silu_and_mul",
    "write_kv",
]


class Context:
    """A device, and threads and workspace for the kernels; calls on one context run one after the other.

    Args:
        threads: how many threads, the caller included; 0 takes all CPUs that the process may use.
        isa: the instruction set, ``"baseline"``, ``"avx2"``, ``"avx512vnni"`` or ``"avx512bf16"``; empty takes the best
            one of this machine. The last one rounds activations to bf16 beside bf16 weights or a cache of 16 bits, to
            8 bits beside q8_0.
        device: ``"cpu"``, ``"cuda"`` or ``"cuda:N"``; ``threads`` and ``isa`` are the CPU's.
        stream: the GPU's stream for all calls, a ``cudaStream_t`` as an integer, 0 for the default stream; by default
            torch's current stream of that GPU at each call, the default stream where torch does not use GPUs.

    Every function of this module takes ``context``; without it they share one context for each device.

    Raises:
        ModelError: the device cannot be used (code ``"unsupported"``), with the reason.
    """

    def __init__(
        self, threads: int = 0, isa: str = "", device: str = "cpu", *, stream: int | None = None
    ) -> None:
        self._ops = _engine.BackendOps(threads, isa, device)
        self._stream = stream
        self._lock = threading.Lock()

    @property
    def threads(self) -> int:
        """Threads at work in a call, the caller included."""
        return int(self._ops.threads)

    @property
    def isa(self) -> str:
        """Name of the instruction set in use; of a GPU, ``"sm_90"``."""
        return str(self._ops.isa)

    @property
    def device(self) -> str:
        """Where the tensors of its calls lie, ``"cpu"`` or ``"cuda:N"``."""
        return str(self._ops.place)

    @contextlib.contextmanager
    def _kernels(self) -> Iterator[_engine.BackendOps]:
        with self._lock, _torch_device(self.device) as current_stream:
            self._ops.enter(current_stream if self._stream is None else self._stream)
            try:
                yield self._ops
            finally:
                self._ops.leave()


@contextlib.contextmanager
def _torch_device(device: str) -> Iterator[int]:
    """Makes the device torch's current one, since only its tensors leave torch; its current stream, 0 without torch."""
    torch = sys.modules.get("torch")
    if device == "cpu" or torch is None or not torch.cuda.is_initialized():
        yield 0
        return
    with torch.cuda.device(device):
        yield torch.cuda.current_stream().cuda_stream


@functools.cache
def _default_context(device: str) -> Context:
    return Context(device=device)


def _kernels(context: Context | None, tensor: Any) -> contextlib.AbstractContextManager[_engine.BackendOps]:
    """Those of the context, by default of the tensor's device."""
    device = _engine.tensor_device(tensor) or "cpu"
    return (context or _default_context(device if device.startswith("cuda:") else "cpu"))._kernels()


def _indices(values: Indices, name: str) -> Tensor:
    if not isinstance(values, Sequence):
        return values
    try:
        return np.asarray([operator.index(value) for value in values], dtype=np.int64)
    except (TypeError, OverflowError):
        raise invalid(name, values, "integers of 64 bits") from None


def _copy(copy: Sequence[int]) -> tuple[int, int, int | None]:
    try:
        source, target, *slots = (checks.integer("copies", value, -(2**63), 2**63 - 1) for value in copy)
        (count,) = slots or (None,)
    except (TypeError, ValueError):
        raise invalid("copies", copy, "pairs or triples of integers: source, target, slots") from None
    return source, target, count


def _prefix_group(group: tuple[Sequence[int], int]) -> tuple[list[int], int]:
    try:
        rows, partitions = group
        return [operator.index(row) for row in rows], operator.index(partitions)
    except (TypeError, ValueError):
        raise invalid("prefix_groups", group, "pairs of a list of rows and a number of partitions") from None


def _packed(packed: PackedWeight) -> PackedWeight:
    if not isinstance(packed, PackedWeight):
        raise invalid("packed", packed, "what pack_linear returned")
    return packed


def _real(value: float, name: str) -> float:
    try:
        return float(value)
    except (TypeError, ValueError):
        raise invalid(name, value, "a number") from None


def _empty(like: Tensor, shape: tuple[int, ...]) -> Tensor:
    if isinstance(like, np.ndarray):
        return np.empty(shape, np.float32)
    if not hasattr(like, "new_empty"):
        raise InvalidArgumentError(f"out must be given beside a {type(like).__name__}", param="out")
    return like.new_empty(shape)


def _shape(x: Any, name: str) -> tuple[int, ...]:
    shape = getattr(x, "shape", None)
    if shape is None:
        raise InvalidArgumentError(
            f"{name} must be a torch tensor or a NumPy array, got {type(x).__name__}", param=name
        )
    return tuple(shape)


def paged_attention(
    q: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    block_tables: Tensor,
    seq_lens: Indices,
    query_lens: Indices | None = None,
    *,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    sinks: Tensor | None = None,
    prefix_groups: Sequence[tuple[Sequence[int], int]] = (),
    out: Tensor | None = None,
    context: Context | None = None,
) -> Tensor:
    """Causal attention of the newest tokens of each sequence over its paged cache, prefill and decode alike.

    The last ``query_lens[s]`` positions of sequence ``s`` are the queries; their keys and values must already be in
    the cache (:func:`write_kv`). A query sees every position up to its own. Slots it does not see may hold anything,
    NaN included. Query heads share key heads in consecutive groups (grouped-query attention, Ainslie et al., 2023).

    Args:
        q: ``[num_tokens, heads, k_dim]`` float32, sequence after sequence, ``num_tokens = sum(query_lens)``.
        k_cache: ``[num_blocks, kv_heads, k_dim, block_size]`` (on a GPU with the last two turned round); ``heads`` is a
            multiple of ``kv_heads``.
        v_cache: ``[num_blocks, kv_heads, block_size, v_dim]``.
        block_tables: ``[num_seqs, max_blocks]`` int32; entries past a sequence's end are not read.
        seq_lens: ``[num_seqs]`` tokens of each sequence, the queries included.
        query_lens: ``[num_seqs]``; by default one query each (decode).
        scale: factor on ``q · k``, usually ``k_dim ** -0.5``.
        window: how many positions a query sees, its own included; 0 means all.
        softcap: ``c`` in ``c * tanh(score / c)`` applied before the softmax; 0 means off.
        sinks: ``[heads]`` float32, a score per head that joins the softmax's sum with no value behind it.
        prefix_groups: ``(rows, partitions)`` pairs: sequences whose first ``partitions * 128`` positions lie in the
            same blocks, all of them visible to each query. Their keys are then read once for the group; the bits of
            the result stay the same.
        out: ``[num_tokens, heads, v_dim]`` float32 for the result.
        context: device, threads and stream to use.

    Returns:
        ``out``, or a new tensor of its shape.
    """
    if query_lens is None:
        query_lens = np.ones(_shape(block_tables, "block_tables")[:1], np.int64)
    if out is None:
        out = _empty(q, (*_shape(q, "q")[:2], *_shape(v_cache, "v_cache")[3:]))
    with _kernels(context, q) as kernels:
        _engine.paged_attention(kernels, 
        q, k_cache, v_cache, block_tables, _indices(seq_lens, "seq_lens"), _indices(query_lens, "query_lens"),
        _real(scale, "scale"), checks.integer("window", window, 0, 2**31 - 1), _real(softcap, "softcap"), sinks,
        [_prefix_group(group) for group in prefix_groups], out,
    )  # fmt: skip
    return out


def write_kv(
    k: Tensor,
    v: Tensor,
    k_cache: Tensor,
    v_cache: Tensor,
    slot_mapping: Indices,
    *,
    context: Context | None = None,
) -> None:
    """Writes one key and value per token into the cache, rounded to its dtype (to nearest, ties to even).

    Args:
        k: ``[num_tokens, kv_heads, k_dim]`` float32.
        v: ``[num_tokens, kv_heads, v_dim]`` float32.
        k_cache: ``[num_blocks, kv_heads, k_dim, block_size]``, written in place.
        v_cache: ``[num_blocks, kv_heads, block_size, v_dim]``, written in place.
        slot_mapping: ``[num_tokens]`` slots; -1 leaves a token out.
        context: device, threads and stream to use.
    """
    with _kernels(context, k) as kernels:
        _engine.write_kv(kernels, k, v, k_cache, v_cache, _indices(slot_mapping, "slot_mapping"))


def copy_blocks(
    k_cache: Tensor,
    v_cache: Tensor,
    copies: Sequence[tuple[int, int] | tuple[int, int, int]],
    *,
    context: Context | None = None,
) -> None:
    """Copies blocks inside the cache, in place and in order: a later copy reads what an earlier one wrote.

    Args:
        k_cache: ``[num_blocks, kv_heads, k_dim, block_size]``.
        v_cache: ``[num_blocks, kv_heads, block_size, v_dim]``.
        copies: ``(source, target)``, or ``(source, target, slots)`` for the first ``slots`` slots of the block only.
        context: device, threads and stream to use.
    """
    full = [_copy(copy) for copy in copies]
    with _kernels(context, k_cache) as kernels:
        _engine.copy_blocks(kernels, k_cache, v_cache, full)


def rms_norm(
    x: Tensor, weight: Tensor, eps: float, out: Tensor | None = None, *, context: Context | None = None
) -> Tensor:
    """``x / sqrt(mean(x²) + eps) * weight`` over the last dimension (Zhang and Sennrich, 2019).

    Args:
        x: ``[..., dim]`` float32.
        weight: ``[dim]`` float32.
        eps: added to the mean of squares.
        out: float32 in the shape of ``x``; may be ``x`` itself.
        context: device, threads and stream to use.

    Returns:
        ``out``, or a new tensor.
    """
    if out is None:
        out = _empty(x, _shape(x, "x"))
    with _kernels(context, x) as kernels:
        _engine.rms_norm(kernels, x, weight, _real(eps, "eps"), out)
    return out


def silu_and_mul(x: Tensor, out: Tensor | None = None, *, context: Context | None = None) -> Tensor:
    """``silu(x[..., :dim]) * x[..., dim:]``, the gate of SwiGLU (Shazeer, 2020).

    Args:
        x: ``[..., 2 * dim]`` float32.
        out: ``[..., dim]`` float32.
        context: device, threads and stream to use.

    Returns:
        ``out``, or a new tensor.
    """
    if out is None:
        *rows, width = _shape(x, "x")
        out = _empty(x, (*rows, width // 2))
    with _kernels(context, x) as kernels:
        _engine.silu_and_mul(kernels, x, out)
    return out


def rope_table(
    max_positions: int,
    rotary_dim: int,
    theta: float = 10000.0,
    *,
    inv_freq: Sequence[float] | np.ndarray[Any, Any] | None = None,
) -> np.ndarray[Any, Any]:
    """Cosines and sines for :func:`rope`.

    Args:
        max_positions: rows of the table.
        rotary_dim: dimensions that are rotated, even.
        theta: base of the geometric series of frequencies.
        inv_freq: ``[rotary_dim // 2]`` frequencies in radians per position, for scaled variants; overrides ``theta``.

    Returns:
        ``[max_positions, rotary_dim]`` float32: ``cos`` in the first half, ``sin`` in the second
        (``torch.from_numpy`` shares it).
    """
    if rotary_dim <= 0 or rotary_dim % 2:
        raise invalid("rotary_dim", rotary_dim, "even and positive")
    if inv_freq is None:
        inv_freq = theta ** -(np.arange(0, rotary_dim, 2, dtype=np.float64) / rotary_dim)
    frequencies = np.asarray(inv_freq, dtype=np.float64)
    if frequencies.shape != (rotary_dim // 2,):
        raise InvalidArgumentError(
            f"inv_freq must have shape ({rotary_dim // 2},), got {frequencies.shape}", param="inv_freq"
        )
    angles = np.arange(max_positions, dtype=np.float64)[:, None] * frequencies
    return np.concatenate([np.cos(angles), np.sin(angles)], axis=1).astype(np.float32)


def rope(
    q: Tensor, k: Tensor, positions: Indices, rope_table: Tensor, *, context: Context | None = None
) -> None:
    """Rotates ``q`` and ``k`` in place by their positions (RoFormer, Su et al., 2021), in halves.

    Dimension ``i`` pairs with ``i + rotary_dim // 2``; dimensions from ``rotary_dim`` on stay as they are.

    Args:
        q: ``[num_tokens, heads, head_dim]`` float32.
        k: ``[num_tokens, kv_heads, head_dim]`` float32.
        positions: ``[num_tokens]`` rows of the table.
        rope_table: ``[max_positions, rotary_dim]`` float32, from :func:`rope_table`.
        context: device, threads and stream to use.
    """
    with _kernels(context, q) as kernels:
        _engine.rope(kernels, q, k, _indices(positions, "positions"), rope_table)


def pack_linear(weight: Tensor, format: str = "", *, context: Context | None = None) -> PackedWeight:
    """Copies a weight matrix into the layout that :func:`linear` reads, rounding nothing.

    For a GPU it is packed on the host, and multiplied with by the context that packed it.

    Args:
        weight: ``[n, k]`` float32, float16 or bfloat16; or, with ``format``, ``[n, bytes per row]`` uint8 rows of GGUF
            blocks. With a GPU's context it may lie in host memory too.
        format: ``"q4_0"``, ``"q4_1"``, ``"q5_0"``, ``"q5_1"`` or ``"q8_0"`` for such blocks.
        context: device, threads and stream to use.

    Returns:
        The packed weight: ``n``, ``k``, ``nbytes``, ``format``, and ``dequantize()`` for the values as float32.
    """
    with _kernels(context, weight) as kernels:
        return _engine.pack_tensor(kernels, weight, format)


def linear(
    x: Tensor,
    packed: PackedWeight,
    bias: Tensor | None = None,
    out: Tensor | None = None,
    *,
    context: Context | None = None,
) -> Tensor:
    """``x @ weight.T + bias`` with a packed weight, accumulated in float32.

    With a quantized weight the rows of ``x`` are quantized too, in groups of 32 along ``k``.

    Args:
        x: ``[..., k]`` float32.
        packed: an ``[n, k]`` weight from :func:`pack_linear`.
        bias: ``[n]`` float32.
        out: ``[..., n]`` float32 for the result.
        context: device, threads and stream to use.

    Returns:
        ``out``, or a new tensor.
    """
    if out is None:
        out = _empty(x, (*_shape(x, "x")[:-1], _packed(packed).n))
    with _kernels(context, x) as kernels:
        _engine.linear(kernels, x, _packed(packed), bias, out)
    return out
