"""The arguments of an engine: their names, their meaning and their limits."""

from __future__ import annotations

import os
import re
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any

from octavo import checks
from octavo.errors import InvalidArgumentError
from octavo.models.hub import DEFAULT_MODEL

if TYPE_CHECKING:
    from octavo.tokenizer import Tokenizer

KV_DTYPES = {"auto": "f16", "f16": "f16", "float16": "f16", "half": "f16", "bf16": "bf16", "bfloat16": "bf16",
             "f32": "f32", "float32": "f32", "float": "f32", "fp8": "fp8", "fp8_e4m3": "fp8",
             "int8": "int8"}  # fmt: skip
ON_LOAD = ("q8", "q4")  # quantizations that are made while loading
STORED = ("gguf", "gptq", "awq", "compressed-tensors", "fp8")  # those that a checkpoint may hold
_DTYPES = ("auto", "float32", "float", "bfloat16", "float16", "half")
_FAR = 2**31 - 1
_DEVICE = re.compile(r"auto|cpu|cuda(-emulated)?(:\d{1,3})?")


@dataclass
class EngineArgs:
    """What to load and how to run it, under vLLM's names where it has one.

    Attributes:
        model: a folder, a GGUF file, a Hugging Face id or a built-in name; with ``weights`` also a configuration (a
            map as in config.json, or a transformers configuration object).
        weights: tensors by Hugging Face's names, in place of the model's files; not copied.
        tokenizer: a folder or GGUF file, or a ``Tokenizer``, in place of the model's own.
        skip_tokenizer_init: load no tokenizer; token ids in, token ids out.
        revision, cache_dir, offline: see ``octavo.models.hub.resolve``.
        chat_template: Jinja source, in place of the model's.
        dtype: "auto", "float32", "bfloat16" or "float16"; changes nothing. Weights stay as precise as in the file, and
            products read activations as their weights ask for (see ``isa``); all else is float32.
        quantization: "q8" or "q4" quantizes the matrices of a float checkpoint while they are loaded: to 8 bits, or to
            4 with the embedding and the head in 8. Any other name ("gguf", "gptq", "awq", "compressed-tensors",
            "fp8") must be what the file holds, which is read from it anyway.
        max_model_len: longest prompt plus answer in tokens; the model's own limit by default and at most.
        gpu_memory_utilization: share of the memory for weights and cache, above 0 to 1. On a CPU it is a share of the
            memory that is available within the control group; on a GPU the cache takes this share (0.9 by default) of
            what is free beside weights and steps.
        kv_cache_memory: the cache in bytes; wins over the share. ``num_gpu_blocks_override``: the cache in blocks.
        kv_cache_dtype: "auto" (f16), "f16", "bf16", "f32", or with 8 bits and a scale for each token and KV head "fp8"
            (e4m3) or "int8".
        block_size: tokens per block, 8, 16 or 32.
        max_num_seqs, max_num_batched_tokens: most sequences and most tokens in one step.
        max_num_seqs_per_tenant: most sequences of one tenant in one step; 0: no limit of its own.
        enable_chunked_prefill: False computes every prompt in one step.
        enable_prefix_caching: reuse the cache of earlier prompts that begin alike.
        device: "cpu", "cuda" or "cuda:N" (an NVIDIA GPU), or "auto", a GPU where there is a usable one.
        reproducible: False lets a GPU choose faster products by how many rows a step has: answers may then depend on
            what else runs. On a CPU nothing changes.
        enforce_eager: True launches every kernel of a GPU's decode steps one by one, in place of recording these steps
            as CUDA graphs: no memory for recordings and no step that records, but more host time per step. Answers are
            the same bits. A CPU has no graphs: nothing changes there.
        screen_head: make a coarse copy of the head of more than 5 bits at loading, which greedy steps of up to four
            sequences read first: of the head itself then only the rows that can still win. Answers are the same bits;
            the copy takes 0.6 bytes for each weight of the head. A GPU has none.
        threads: threads that compute; 0 is one per core.
        isa: instruction set, "avx512bf16", "avx512vnni", "avx2" or "baseline"; empty takes the machine's best. Answers
            are the same bits for one instruction set, so machines of several kinds can agree on one. avx512bf16 rounds
            activations to bf16 where they meet bf16 weights or, in attention, a cache of 16 bits, and to 8 bits
            (outliers aside) where they meet q8_0; the others keep float32 and 16 bits.
        seed: makes the seeds of requests that give none reproducible, in the order they are submitted.
        max_grammar_bytes: longest schema or grammar of structured output. ``grammar_timeout``: seconds that a request
            waits for it to compile. ``grammar_threads``: compiled at once. ``grammar_cache_size``: how many are kept.
        generation_config: "auto" takes default sampling parameters from the model's generation_config.json, "vllm"
            takes none.
    """

    model: Any = DEFAULT_MODEL
    weights: Mapping[str, Any] | None = None
    tokenizer: str | os.PathLike[str] | Tokenizer | None = None
    skip_tokenizer_init: bool = False
    revision: str | None = None
    cache_dir: str | os.PathLike[str] | None = None
    offline: bool = False
    chat_template: str | None = None
    dtype: Any = "auto"
    quantization: str | None = None
    max_model_len: int | None = None
    gpu_memory_utilization: float | None = None
    kv_cache_memory: int | None = None
    num_gpu_blocks_override: int | None = None
    kv_cache_dtype: str = "auto"
    block_size: int = 16
    max_num_seqs: int = 256
    max_num_seqs_per_tenant: int = 0
    max_num_batched_tokens: int = 512
    enable_chunked_prefill: bool = True
    enable_prefix_caching: bool = True
    device: str = "auto"
    reproducible: bool = True
    enforce_eager: bool = False
    screen_head: bool = True
    threads: int = 0
    isa: str = ""
    seed: int | None = None
    generation_config: str = "auto"
    max_grammar_bytes: int = 256 * 1024
    grammar_timeout: float = 10.0
    grammar_threads: int = 2
    grammar_cache_size: int = 256

    def __post_init__(self) -> None:
        optional: dict[str, tuple[int, int]] = {
            "max_model_len": (1, _FAR),
            "kv_cache_memory": (1, 2**63 - 1),
            "num_gpu_blocks_override": (2, _FAR),
            "seed": (-(2**63), 2**64 - 1),
        }
        for name, (low, high) in optional.items():
            if getattr(self, name) is not None:
                checks.integer(name, getattr(self, name), low, high)
        checks.integer("max_num_seqs", self.max_num_seqs, 1, 65536)
        checks.integer("max_num_seqs_per_tenant", self.max_num_seqs_per_tenant, 0, 65536)
        checks.integer("max_num_batched_tokens", self.max_num_batched_tokens, 1, _FAR)
        checks.integer("threads", self.threads, 0, 1024)
        checks.integer("max_grammar_bytes", self.max_grammar_bytes, 1, _FAR)
        checks.integer("grammar_threads", self.grammar_threads, 1, 64)
        checks.integer("grammar_cache_size", self.grammar_cache_size, 1, _FAR)
        if checks.number("grammar_timeout", self.grammar_timeout, 0.0, 3600.0) == 0.0:
            raise checks.invalid("grammar_timeout", self.grammar_timeout, "above 0")
        if checks.integer("block_size", self.block_size, 1, 1024) not in (8, 16, 32):
            raise checks.invalid("block_size", self.block_size, "8, 16 or 32")
        if self.gpu_memory_utilization is not None:
            share = checks.number("gpu_memory_utilization", self.gpu_memory_utilization, 0.0, 1.0)
            if share == 0.0:
                raise checks.invalid("gpu_memory_utilization", share, "above 0")
        for name in (
            "enable_chunked_prefill",
            "enable_prefix_caching",
            "reproducible",
            "enforce_eager",
            "screen_head",
            "offline",
            "skip_tokenizer_init",
        ):
            checks.boolean(name, getattr(self, name))
        self._check_choices()

    def _check_choices(self) -> None:
        if not isinstance(self.device, str) or not _DEVICE.fullmatch(self.device):
            raise checks.invalid("device", self.device, "auto, cpu, cuda or cuda:N with the number of a GPU")
        if self.kv_cache_dtype not in KV_DTYPES:
            raise checks.invalid("kv_cache_dtype", self.kv_cache_dtype, "auto, f16, bf16, f32, fp8 or int8")
        if str(self.dtype).removeprefix("torch.") not in _DTYPES:
            raise checks.invalid("dtype", self.dtype, f"one of {', '.join(_DTYPES)}")
        if self.quantization not in (None, *ON_LOAD, *STORED):
            raise checks.invalid(
                "quantization", self.quantization, f"one of {', '.join((*ON_LOAD, *STORED))}"
            )
        if self.generation_config not in ("auto", "vllm"):
            raise checks.invalid("generation_config", self.generation_config, "'auto' or 'vllm'")

    @property
    def kv_dtype(self) -> str:
        """The engine's name for ``kv_cache_dtype``."""
        return KV_DTYPES[self.kv_cache_dtype]

    @classmethod
    def from_kwargs(cls, kwargs: Mapping[str, Any]) -> EngineArgs:
        """From the keywords of vLLM's ``LLM``.

        Those that have a meaning here are taken, those that would change nothing are accepted with the values for
        which that is true, all others raise.

        Raises:
            InvalidArgumentError: an argument is unknown, out of range, or asks for something that is not there.
        """
        known = {f.name for f in fields(cls)}
        taken: dict[str, Any] = {}
        for name, value in kwargs.items():
            target = _ALIASES.get(name, name)
            if target in known:
                if target in taken:
                    raise InvalidArgumentError(
                        f"{name} and {target} are the same argument, both given", param=name
                    )
                if value is not None or name not in _UNSET_IS_DEFAULT:
                    taken[target] = value
            elif name in _HARMLESS:
                accepts, expected = _HARMLESS[name]
                if not accepts(value):
                    raise checks.invalid(name, value, f"{expected} in this version of octavo")
                if name == "trust_remote_code" and value:
                    warnings.warn("trust_remote_code: octavo never runs code of a model", stacklevel=3)
            else:
                raise InvalidArgumentError(f"LLM has no argument {name!r} (value {value!r})", param=name)
        return cls(**taken)


_ALIASES = {"kv_cache_memory_bytes": "kv_cache_memory", "download_dir": "cache_dir"}
_UNSET_IS_DEFAULT = {"max_num_batched_tokens", "max_num_seqs", "enable_chunked_prefill", "enable_prefix_caching",
                     "block_size", "kv_cache_dtype", "dtype", "enforce_eager"}  # fmt: skip


def _anything(value: Any) -> bool:
    return True


def _one_of(*values: Any) -> tuple[Callable[[Any], bool], str]:
    def accepts(value: Any) -> bool:
        return any(value is v or (type(value) is type(v) and value == v) for v in values)

    return accepts, " or ".join(map(repr, values))


def _nothing(value: Any) -> bool:
    return not value


_ANY = (_anything, "anything")
_NOTHING = (_nothing, "unset")
# Arguments of vLLM's LLM without a meaning here, and the values for which ignoring them changes nothing.
_HARMLESS: dict[str, tuple[Callable[[Any], bool], str]] = {
    "async_scheduling": _ANY,
    "code_revision": _NOTHING,
    "compilation_config": _ANY,
    "config_format": _one_of("auto", "hf"),
    "cpu_offload_gb": _NOTHING,
    "data_parallel_size": _one_of(1),
    "disable_async_output_proc": _ANY,
    "disable_custom_all_reduce": _ANY,
    "disable_log_requests": _ANY,
    "disable_log_stats": _ANY,
    "disable_sliding_window": _one_of(False),
    "distributed_executor_backend": _one_of(None, "mp", "uni"),
    "enable_lora": _NOTHING,
    "enable_sleep_mode": _NOTHING,
    "hf_overrides": _NOTHING,
    "hf_token": _NOTHING,
    "limit_mm_per_prompt": _NOTHING,
    "load_format": _one_of("auto", "gguf", "safetensors"),
    "logits_processors": _NOTHING,
    "max_parallel_loading_workers": _ANY,
    "max_seq_len_to_capture": _ANY,
    "num_scheduler_steps": _one_of(1),
    "override_generation_config": _NOTHING,
    "pipeline_parallel_size": _one_of(1),
    "preemption_mode": _one_of(None, "recompute"),
    "rope_scaling": _NOTHING,
    "rope_theta": _NOTHING,
    "runner": _one_of("auto", "generate"),
    "scheduling_policy": _one_of("fcfs", "priority"),
    "served_model_name": _ANY,
    "speculative_config": _NOTHING,
    "swap_space": _ANY,
    "task": _one_of("auto", "generate"),
    "tensor_parallel_size": _one_of(1),
    "tokenizer_mode": _one_of("auto", "fast"),
    "tokenizer_revision": _NOTHING,
    "trust_remote_code": _one_of(False, True, None),
    "use_v2_block_manager": _ANY,
}
