"""Flags of ``vllm serve`` that ask for nothing here: taken with the values for which that is true, else refused."""

from __future__ import annotations

import argparse

from octavo.engine_args import EngineArgs

_VALUES: tuple[tuple[str, type, str], ...] = (
    (
        "dtype",
        str,
        "weights stay as in the file, products read activations as their weights ask for, all else is float32",
    ),
    ("load_format", str, "read from the file: auto, gguf or safetensors"),
    ("tokenizer_mode", str, "auto or fast"),
    ("task", str, "auto or generate"),
    ("runner", str, "auto or generate"),
    ("scheduling_policy", str, "fcfs or priority: a request's priority always counts"),
    ("distributed_executor_backend", str, "mp or uni"),
    ("tensor_parallel_size", int, "only 1"),
    ("pipeline_parallel_size", int, "only 1"),
    ("data_parallel_size", int, "only 1"),
    ("cpu_offload_gb", float, "only 0"),
    ("swap_space", float, "nothing is swapped: a preempted request is computed again"),
    ("max_seq_len_to_capture", int, "a GPU's decode steps of every length are recorded as graphs"),
)
_SWITCHES = (
    ("trust_remote_code", "no code of a model is ever run"),
    ("disable_log_stats", "statistics are at /metrics"),
    ("disable_custom_all_reduce", "there is one device"),
    ("async_scheduling", "always so"),
    ("enable_auto_tool_choice", "always so"),
)


def add_vllm_flags(parser: argparse.ArgumentParser) -> None:
    """Each such flag, unset by default."""
    group = parser.add_argument_group("vLLM's flags that change nothing here")
    for name, kind, text in _VALUES:
        group.add_argument(_flag(name), type=kind, metavar="N" if kind in (int, float) else "NAME", help=text)
    for name, text in _SWITCHES:
        group.add_argument(_flag(name), action="store_true", help=text)
    for name, off in (
        ("enable_prefix_caching", "no_prefix_caching"),
        ("enable_chunked_prefill", "no_chunked_prefill"),
    ):
        text = f"so by default; {_flag(off)} turns it off"
        group.add_argument(_flag(name), dest=off, action="store_false", default=False, help=text)


def check_vllm_flags(flags: argparse.Namespace) -> None:
    """Raise ``InvalidArgumentError`` for a value that would ask for something."""
    given = {name: getattr(flags, name) for name, _, _ in _VALUES}
    EngineArgs.from_kwargs({name: value for name, value in given.items() if value is not None})


def _flag(name: str) -> str:
    return "--" + name.replace("_", "-")
