"""The flags that choose a model and its engine, shared by every command that loads one."""

from __future__ import annotations

import argparse
import os
import re

from octavo.cli.text_file import read_text
from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError
from octavo.models.hub import DEFAULT_MODEL

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "t": 10**12}


def add_source_flags(parser: argparse.ArgumentParser) -> None:
    """Which model, and where it is kept."""
    parser.add_argument(
        "model",
        nargs="?",
        default=DEFAULT_MODEL,
        help="a model folder, a .gguf file, a Hugging Face id (org/name, org/name:file.gguf) or a built-in name",
    )
    parser.add_argument("--revision", help="branch, tag or commit of a Hugging Face model")
    parser.add_argument(
        "--cache-dir",
        "--download-dir",
        default=os.environ.get("OCTAVO_CACHE"),
        help="where built-in models are kept; $OCTAVO_CACHE, else the user's cache folder",
    )
    parser.add_argument("--offline", action="store_true", help="never download")


def add_model_flags(parser: argparse.ArgumentParser) -> None:
    """Everything ``engine_args`` reads."""
    add_source_flags(parser)
    group = parser.add_argument_group("engine")
    group.add_argument("--tokenizer", help="a folder or .gguf file to take the tokenizer from")
    group.add_argument(
        "--quantization",
        metavar="NAME",
        help="q8 or q4: quantize the matrices of a float checkpoint while loading; other names (gguf, gptq, awq, "
        "compressed-tensors, fp8) must be what the file holds",
    )
    group.add_argument("--chat-template", help="a file with a Jinja chat template, in place of the model's")
    group.add_argument(
        "--max-model-len", type=int, help="longest prompt plus answer in tokens; the model's by default"
    )
    group.add_argument(
        "--gpu-memory-utilization",
        type=float,
        help="share of the memory there is for weights and cache; by default the cache has room for 32 sequences of "
        "full length, at most 40%%. On a GPU: the cache's share of what is free beside weights and steps, by "
        "default 0.9",
    )
    group.add_argument(
        "--kv-cache-memory",
        "--kv-cache-memory-bytes",
        type=memory_size,
        help="size of the cache in bytes (K, M, G, KiB, MiB, GiB)",
    )
    group.add_argument("--kv-cache-dtype", default="auto", help="auto (f16), f16, bf16, f32, fp8 or int8")
    group.add_argument("--block-size", type=int, default=16, help="tokens per cache block: 8, 16 or 32")
    group.add_argument("--max-num-seqs", type=int, default=256, help="most sequences in one step")
    group.add_argument(
        "--max-num-seqs-per-tenant",
        type=int,
        default=0,
        help="most sequences of one tenant in one step; 0: no limit of its own",
    )
    group.add_argument("--max-num-batched-tokens", type=int, default=512, help="most tokens in one step")
    group.add_argument(
        "--no-prefix-caching",
        "--no-enable-prefix-caching",
        action="store_true",
        help="never reuse the cache of an earlier prompt",
    )
    group.add_argument(
        "--no-chunked-prefill",
        "--no-enable-chunked-prefill",
        action="store_true",
        help="compute every prompt in one step",
    )
    group.add_argument(
        "--device",
        default="auto",
        help="cpu, cuda or cuda:N; auto: a GPU where there is a usable one (octavo info says why there is none)",
    )
    exactness = group.add_mutually_exclusive_group()
    exactness.add_argument(
        "--reproducible",
        action="store_true",
        default=True,
        help="equal requests get equal answers, whatever else runs; the default",
    )
    exactness.add_argument(
        "--fast",
        dest="reproducible",
        action="store_false",
        default=argparse.SUPPRESS,
        help="let a GPU choose faster products by the size of a step: answers may depend on what else runs",
    )
    group.add_argument(
        "--enforce-eager",
        action="store_true",
        help="launch every kernel of a GPU's decode steps one by one, in place of recording the steps as CUDA graphs: "
        "less memory, more host time per step, the same answers; a CPU has no graphs",
    )
    group.add_argument(
        "--no-screen-head",
        action="store_true",
        help="make no coarse copy of a head of more than 5 bits, with which a CPU decodes one to four greedy sequences "
        "faster: less memory, the same answers",
    )
    group.add_argument(
        "--threads",
        type=int,
        default=_threads_from_environment(),
        help="threads that compute; 0 is one per core; $OCTAVO_THREADS",
    )
    group.add_argument(
        "--isa",
        default="",
        help="instruction set: avx512bf16, avx512vnni, avx2 or baseline; empty: the machine's best; "
        "answers have the same bits for one of them",
    )
    group.add_argument(
        "--max-grammar-bytes",
        type=int,
        default=EngineArgs.max_grammar_bytes,
        help="longest schema or grammar of structured output",
    )
    group.add_argument(
        "--grammar-timeout",
        type=float,
        default=EngineArgs.grammar_timeout,
        help="seconds that a request waits for its grammar to compile",
    )
    group.add_argument(
        "--grammar-threads",
        type=int,
        default=EngineArgs.grammar_threads,
        help="threads that compile grammars; each steps back behind the engine",
    )
    group.add_argument(
        "--grammar-cache-size",
        type=int,
        default=EngineArgs.grammar_cache_size,
        help="compiled grammars that are kept, the least recently used goes first",
    )


def _threads_from_environment() -> int:
    text = os.environ.get("OCTAVO_THREADS") or "0"
    if not text.isdecimal():
        raise InvalidArgumentError(
            f"OCTAVO_THREADS must be a number of threads, got {text!r}", param="threads"
        )
    return int(text)


def engine_args(flags: argparse.Namespace) -> EngineArgs:
    """The engine's arguments that the flags of ``add_model_flags`` ask for."""
    return EngineArgs(
        model=flags.model,
        tokenizer=flags.tokenizer,
        revision=flags.revision,
        cache_dir=flags.cache_dir,
        offline=flags.offline,
        chat_template=None
        if flags.chat_template is None
        else read_text("--chat-template", flags.chat_template),
        quantization=flags.quantization,
        max_model_len=flags.max_model_len,
        gpu_memory_utilization=flags.gpu_memory_utilization,
        kv_cache_memory=flags.kv_cache_memory,
        kv_cache_dtype=flags.kv_cache_dtype,
        block_size=flags.block_size,
        max_num_seqs=flags.max_num_seqs,
        max_num_seqs_per_tenant=flags.max_num_seqs_per_tenant,
        max_num_batched_tokens=flags.max_num_batched_tokens,
        enable_prefix_caching=not flags.no_prefix_caching,
        enable_chunked_prefill=not flags.no_chunked_prefill,
        device=flags.device,
        reproducible=flags.reproducible,
        enforce_eager=flags.enforce_eager,
        screen_head=not flags.no_screen_head,
        threads=flags.threads,
        isa=flags.isa,
        max_grammar_bytes=flags.max_grammar_bytes,
        grammar_timeout=flags.grammar_timeout,
        grammar_threads=flags.grammar_threads,
        grammar_cache_size=flags.grammar_cache_size,
    )


def memory_size(text: str) -> int:
    """``"2GiB"``, ``"500M"``, ``"1000000"`` as bytes."""
    match = re.fullmatch(r"(\d+(?:\.\d+)?)\s*([kmgt]?)(i?)b?", text.strip().lower())
    if match is None or (match[3] and not match[2]):
        raise argparse.ArgumentTypeError(f"not a size in bytes: {text!r} (examples: 2GiB, 500M, 1000000)")
    unit = 1024 ** "kmgt".index(match[2]) * 1024 if match[3] else _UNITS[match[2]]
    return int(float(match[1]) * unit)
