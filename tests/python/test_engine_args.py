"""vLLM's keywords: those with a meaning act, harmless ones pass, the rest raise and are named."""

from __future__ import annotations

from typing import Any

import pytest

from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError


def test_keywords_with_a_meaning() -> None:
    args = EngineArgs.from_kwargs(
        {
            "model": "m",
            "gpu_memory_utilization": 0.9,
            "max_model_len": 4096,
            "enable_chunked_prefill": True,
            "kv_cache_memory_bytes": 10**9,
            "kv_cache_dtype": "bfloat16",
            "download_dir": "/x",
            "max_num_batched_tokens": None,
        }
    )
    assert (args.model, args.max_model_len, args.kv_cache_memory, args.kv_dtype) == ("m", 4096, 10**9, "bf16")
    assert args.cache_dir == "/x" and args.max_num_batched_tokens == 512


def test_torch_dtypes_are_names_too() -> None:
    torch = pytest.importorskip("torch")
    assert EngineArgs(dtype=torch.bfloat16).dtype is torch.bfloat16


def test_remote_code_is_never_run() -> None:
    with pytest.warns(UserWarning, match="trust_remote_code"):
        EngineArgs.from_kwargs({"trust_remote_code": True})


def test_harmless_keywords() -> None:
    EngineArgs.from_kwargs(
        {
            "swap_space": 4,
            "tensor_parallel_size": 1,
            "trust_remote_code": False,
            "disable_log_stats": True,
            "cpu_offload_gb": 0,
            "hf_overrides": {},
            "device": "cpu",
            "tokenizer_mode": "auto",
            "speculative_config": None,
            "load_format": "auto",
            "scheduling_policy": "fcfs",
        }
    )


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor_parallel_size", 2),
        ("tensor_parallel_size", True),
        ("speculative_config", {"model": "x"}),
        ("cpu_offload_gb", 4),
        ("enable_lora", True),
        ("quantization", "bitsandbytes"),
        ("dtype", "float8"),
        ("device", "tpu"),
        ("kv_cache_dtype", "fp8_e5m2"),
        ("block_size", 12),
        ("block_size", 16.0),
        ("max_model_len", 0),
        ("max_num_seqs", "many"),
        ("gpu_memory_utilization", 0),
        ("gpu_memory_utilization", 1.5),
        ("gpu_memory_utilization", float("nan")),
        ("kv_cache_memory", -1),
        ("enable_prefix_caching", 1),
        ("enforce_eager", 1),
        ("screen_head", "no"),
        ("threads", -1),
        ("seed", "x"),
        ("no_such_argument", 1),
    ],
)
def test_what_cannot_be_honoured_is_named(name: str, value: Any) -> None:
    with pytest.raises(InvalidArgumentError, match=name) as caught:
        EngineArgs.from_kwargs({name: value})
    assert caught.value.param == name
    assert repr(value) in str(caught.value)


def test_an_argument_under_two_names() -> None:
    with pytest.raises(InvalidArgumentError, match="same argument"):
        EngineArgs.from_kwargs({"kv_cache_memory": 1, "kv_cache_memory_bytes": 1})
