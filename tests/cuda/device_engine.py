"""Engines of a small random Llama on the emulated GPU and on the CPU, driven by token ids."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
from emulator_library import library_path

from octavo import _engine

BACKEND = "cuda-emulated"
VOCAB = 96


def _runtime_helpers() -> ModuleType:
    path = Path(__file__).parents[1] / "engine" / "runtime" / "conftest_runtime.py"
    spec = importlib.util.spec_from_file_location("conftest_runtime", path)
    assert spec and spec.loader
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


helpers = _runtime_helpers()


def require_backend() -> None:
    """Skips the test where the build left the emulated backend out."""
    library_path("octavo_cuda_emulated")


def make_engine(device: str = BACKEND, **options: Any) -> _engine.Engine:
    require_backend()
    return helpers.make_engine(device=device, **({"kv_dtype": "f16", "max_num_seqs": 8} | options))


def requests(count: int, seed: int = 3) -> list[tuple[list[int], dict[str, Any]]]:
    """Prompts and parameters of many kinds."""
    random = np.random.default_rng(seed)
    head = random.integers(2, VOCAB, 20).tolist()
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.9, "top_p": 0.9},
        {"temperature": 1.0, "top_k": 8, "min_p": 0.05},
        {"temperature": 0.8, "repetition_penalty": 1.3, "frequency_penalty": 0.4, "presence_penalty": 0.2},
        {"temperature": 1.0, "logprobs": 2, "prompt_logprobs": 1},
        {"temperature": 1.0, "bad_words": [[5, 6], [9]], "logit_bias": [(7, 3.0)]},
        {"temperature": 1.0, "n": 2},
        {"temperature": 0.7, "stop_token_ids": [3, 30, 60], "min_tokens": 3},
    ]
    out = []
    for i in range(count):
        own = random.integers(2, VOCAB, int(random.integers(1, 12))).tolist()
        prompt = (head if i % 3 == 0 else []) + own
        out.append((prompt, {"seed": 17 + i, "max_tokens": 6 + i % 4} | kinds[i % len(kinds)]))
    return out


Answer = dict[int, tuple[list[int], str, str, list[Any]]]  # by choice: tokens, text, finish, logprobs


def answers(
    engine: _engine.Engine, asked: list[tuple[list[int], dict[str, Any]]], *, together: bool
) -> list[Answer]:
    """What each request was told, all at once or one after the other."""
    channel = engine.open_channel()
    told: list[Answer] = []
    groups = [asked] if together else [[one] for one in asked]
    for group in groups:
        engine.pause()
        ids = [engine.submit(prompt, helpers.params(**fields), channel) for prompt, fields in group]
        engine.resume()
        told += _listen(channel, ids, [fields.get("n", 1) for _, fields in group])
    engine.audit()
    return told


def _listen(channel: _engine.Channel, ids: list[int], choices: list[int]) -> list[Answer]:
    out: dict[int, Answer] = {i: {} for i in ids}
    left = sum(choices)
    while left:
        channel.wait(100)
        for delta in channel.drain():
            assert delta.error is None, delta.error
            tokens, text, _, scores = out[delta.id].get(delta.choice, ([], "", "", []))
            scores = scores + (delta.prompt_logprobs or []) + (delta.logprobs or [])
            out[delta.id][delta.choice] = (
                tokens + delta.token_ids,
                text + delta.text,
                delta.finish or "",
                scores,
            )
            left -= delta.finish is not None
    return [out[i] for i in ids]
