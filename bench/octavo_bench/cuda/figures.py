"""Attention and whole models against what the GPU can do, measured in the same run."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch

from octavo import _engine
from octavo_bench.cuda.reference import Variant
from octavo_bench.cuda.report import check, figure
from octavo_bench.cuda.scale import Scale

END = 1
UNTIMED = 8  # first tokens of an answer, while graphs are recorded


def _figure(scale: Scale, name: str, value: float, unit: str, goal: float, *, at_most: bool = False) -> None:
    """A figure with a goal, which only a GPU can be asked to reach."""
    figure(name, value, unit, goal if scale.on_gpu else None, at_most=at_most)


def _seconds(work: Callable[[], object], repeats: int) -> float:
    """Of one ``work`` on the GPU, the best of three rounds."""
    work()
    best = float("inf")
    for _ in range(3):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(repeats):
            work()
        torch.cuda.synchronize()
        best = min(best, (time.perf_counter() - begin) / repeats)
    return best


def _bandwidth(scale: Scale) -> float:
    """Bytes per second of a copy on the device, read and written."""
    if not scale.on_gpu:
        return 1e9
    source = torch.empty(2**30, dtype=torch.uint8, device="cuda")
    target = torch.empty_like(source)
    return 2 * source.numel() / _seconds(lambda: target.copy_(source), 20)


def _gemm(scale: Scale) -> float:
    """Operations per second of a large bfloat16 product."""
    if not scale.on_gpu:
        return 1e9
    a = torch.randn(8192, 8192, dtype=torch.bfloat16, device="cuda")
    return 2 * 8192**3 / _seconds(lambda: a @ a, 10)


def run_attention(scale: Scale) -> None:
    """Decode by the bytes that it must read, prefill by the operations that it must do."""
    bandwidth, operations = _bandwidth(scale), _gemm(scale)
    figure("device copy", bandwidth / 1e9, "GB/s")
    figure("bf16 product 8192", operations / 1e12, "TFLOP/s")
    shape: dict[str, Any] = {
        "device": scale.device, "heads": scale.heads, "kv_heads": scale.kv_heads, "head_dim": scale.head_dim,
        "block_size": 16, "repeats": 20 if scale.on_gpu else 1,
    }  # fmt: skip
    long = 8 * scale.context
    for dtype, size in (("f16", 2.0), ("fp8", 1 + 4 / scale.head_dim)):
        for batch, context in ((scale.batches[-1], scale.context), (scale.batches[0], 4 * long)):
            seconds = _engine.time_attention(kv_dtype=dtype, rows=[(1, context)] * batch, **shape)
            read = batch * context * 2 * scale.kv_heads * scale.head_dim * size
            name = f"decode attention {dtype}, {batch} x {context}"
            figure(name, read / seconds / 1e9, "GB/s")
            _figure(scale, f"{name}, of the copy", read / seconds / bandwidth, "share", 0.85)
    for new, context in ((long, long), (scale.context, long)):
        seconds = _engine.time_attention(kv_dtype="f16", rows=[(new, context)], **shape)
        pairs = new * (context - new) + new * (new + 1) / 2
        done = 4 * pairs * scale.heads * scale.head_dim
        name = f"prefill attention {new} of {context}"
        figure(name, done / seconds / 1e12, "TFLOP/s")
        _figure(scale, f"{name}, of the product", done / seconds / operations, "share", 0.35)


def _random_weights(scale: Scale) -> tuple[Variant, dict[str, torch.Tensor], int]:
    """An 8B-shaped model; all layers share their tensors on the host, so that making them takes seconds."""
    v = Variant(
        "8B", scale.heads, scale.kv_heads, scale.head_dim, scale.model_hidden, scale.intermediate, scale.vocab
    )
    one = v.weights()
    tensors = {name: t for name, t in one.items() if ".layers." not in name}
    for i in range(scale.layers):
        tensors |= {name.replace(".0.", f".{i}."): t for name, t in one.items() if ".layers.0." in name}
    read = sum(t.numel() * t.element_size() for name, t in tensors.items() if "embed_tokens" not in name)
    return Variant(**{**v.__dict__, "layers": scale.layers}), tensors, read


@dataclass(frozen=True)
class Decode:
    """A step in which every sequence decodes, on average."""

    seconds: float
    host_us: float  # until it was enqueued, and to read and tell its tokens

    @classmethod
    def between(cls, begin: tuple[float, dict[str, Any]], end: tuple[float, dict[str, Any]]) -> Decode:
        """Of the steps between two moments, with the engine's counters of each."""
        steps = max(end[1]["steps"] - begin[1]["steps"], 1)
        host = sum(end[1][name] - begin[1][name] for name in ("host_ns", "submit_ns"))
        return cls((end[0] - begin[0]) / steps, host / steps / 1e3)


class Served:
    """An engine that answers requests whose tokens nobody reads."""

    def __init__(
        self, scale: Scale, variant: Variant, tensors: dict[str, torch.Tensor], **options: Any
    ) -> None:
        length = scale.context + scale.new_tokens + 16
        config = variant.config(length)
        config.eos_token_ids = [END]
        most = scale.batches[-1]
        settings: dict[str, Any] = {
            "device": scale.device, "max_model_len": length, "kv_dtype": "f16", "max_num_seqs": most,
            "num_blocks": (length // 16 + 2) * most, "max_num_batched_tokens": max(most, min(8192, 8 * scale.context)),
            "enable_prefix_caching": False,
        } | options  # fmt: skip
        self.engine = _engine.Engine(config, _engine.WeightFiles.from_tensors(tensors), **settings)
        vocab = variant.vocab
        self.engine.start(
            _engine.TokenTable(
                b"x" * vocab, np.arange(vocab + 1, dtype=np.uint32), np.zeros(vocab, np.uint8), False
            )
        )
        self.channel = self.engine.open_channel()
        self.vocab = vocab

    def answers(self, prompts: list[list[int]], new: int, **fields: Any) -> list[list[int]]:
        """The answers' tokens."""
        tokens, _ = self._run(prompts, new, **fields)
        return tokens

    def decode(self, prompts: list[list[int]], new: int) -> Decode:
        """What a step takes while all of them decode."""
        _, decode = self._run(prompts, new)
        return decode

    def _run(self, prompts: list[list[int]], new: int, **fields: Any) -> tuple[list[list[int]], Decode]:
        params = _engine.SamplingParams()
        params.temperature, params.max_tokens = 0.0, new
        for name, value in fields.items():
            setattr(params, name, value)
        self.engine.pause()
        ids = [self.engine.submit(p, params, self.channel) for p in prompts]
        self.engine.resume()
        answers: dict[int, list[int]] = {i: [] for i in ids}
        left, starting, decode = len(ids), set(ids), None
        begin: tuple[float, dict[str, Any]] | None = None
        while left:
            self.channel.wait(100)
            for delta in self.channel.drain():
                if delta.error:
                    raise RuntimeError(delta.error)
                answers[delta.id] += delta.token_ids
                if delta.finish is not None:
                    left -= 1
                    if begin and not decode:  # from here on a step has less to do
                        decode = Decode.between(begin, (time.perf_counter(), self.engine.stats()))
                elif len(answers[delta.id]) > min(UNTIMED, new // 4):
                    starting.discard(delta.id)
            if not starting and not begin:
                begin = time.perf_counter(), self.engine.stats()
        end = time.perf_counter(), self.engine.stats()
        return [answers[i] for i in ids], decode or Decode.between(begin or end, end)

    def close(self) -> None:
        """Frees the device."""
        self.engine.shutdown()


def _prompts(scale: Scale, count: int, seed: int = 1) -> list[list[int]]:
    numbers = np.random.default_rng(seed)
    return [numbers.integers(2, scale.vocab, scale.context).tolist() for _ in range(count)]


def run_throughput(scale: Scale) -> None:
    """Tokens per second against the time that the memory needs for weights and cache, reproducible and fast."""
    bandwidth = _bandwidth(scale)
    variant, tensors, weight_bytes = _random_weights(scale)
    for fast in (False, True):
        served = Served(scale, variant, tensors, fast=fast)
        mode = "fast" if fast else "reproducible"
        for batch in scale.batches:
            decode = served.decode(_prompts(scale, batch), scale.new_tokens)
            positions = batch * (scale.context + scale.new_tokens / 2)
            cache = positions * 4 * scale.layers * scale.kv_heads * scale.head_dim
            floor = (weight_bytes + cache) / bandwidth
            name = f"8B bf16, {batch} sequences, {mode}"
            figure(name, batch / decode.seconds, "tokens/s")
            _figure(scale, f"{name}, of the floor", decode.seconds / floor, "x", 1.25, at_most=True)
            _figure(scale, f"{name}, host time per step", decode.host_us, "us", 60.0, at_most=True)
        served.close()


def run_same_bits(scale: Scale) -> None:
    """A request's answer alone, in company, in pieces, and without graphs."""
    v = Variant(
        "bits", scale.heads, scale.kv_heads, scale.head_dim, scale.hidden, 2 * scale.hidden, scale.vocab, 2
    )
    tensors = v.weights()
    prompts = _prompts(scale, min(24, scale.batches[-1] * 2))
    served = Served(scale, v, tensors)
    fields: dict[str, Any] = {"temperature": 0.8, "seed": 5}
    alone = [served.answers([p], scale.new_tokens, **fields)[0] for p in prompts]
    together = served.answers(prompts, scale.new_tokens, **fields)
    served.close()
    check("alone and in company", alone == together)
    for name, options in (
        ("small chunks", {"max_num_batched_tokens": max(scale.batches[-1], 64)}),
        ("preempted", {"num_blocks": (scale.context + scale.new_tokens) // 16 * 3 + 8}),
        ("without graphs", {"graphs": False}),
        ("with a prefix cache", {"enable_prefix_caching": True}),
    ):
        served = Served(scale, v, tensors, **options)
        answers = served.answers(prompts, scale.new_tokens, **fields)
        check(name, answers == alone)
        served.close()
