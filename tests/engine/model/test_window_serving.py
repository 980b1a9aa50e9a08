"""Layers with a window in the running engine: the same bits in any company, and blocks behind the window come free."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import family_models
import numpy as np
import pytest

from octavo import _engine
from octavo.models.checkpoint import open_checkpoint

WINDOW, NEW_TOKENS, BLOCK = 24, 24, 8
LENGTHS = [5, 12, 30, 77, 150, 150, 220]

Answer = tuple[list[int], list[Any]]


class Served:
    """A started engine whose tokens mean nothing."""

    def __init__(self, path: Path, **options: Any) -> None:
        checkpoint = open_checkpoint(path)
        options = {"max_model_len": 512, "num_blocks": 512, "block_size": BLOCK, "kv_dtype": "f32"} | options
        self.engine = _engine.Engine(checkpoint.config, checkpoint.weights, **options)
        vocab = checkpoint.config.vocab
        self.engine.start(
            _engine.TokenTable(b"", np.zeros(vocab + 1, np.uint32), np.zeros(vocab, np.uint8), False)
        )
        self.channel = self.engine.open_channel()

    def __enter__(self) -> Served:
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.shutdown()

    def run(self, prompts: list[list[int]], new_tokens: int = NEW_TOKENS) -> list[Answer]:
        params = _engine.SamplingParams()
        params.temperature, params.max_tokens, params.logprobs = 0.0, new_tokens, 2
        ids = [self.engine.submit(prompt, params, self.channel) for prompt in prompts]
        answers: dict[int, Answer] = {i: ([], []) for i in ids}
        running = set(ids)
        deadline = time.monotonic() + 120
        while running:
            assert time.monotonic() < deadline, self.engine.stats()
            self.channel.wait(20)
            for delta in self.channel.drain():
                assert delta.error is None, delta.error
                answers[delta.id][0].extend(delta.token_ids)
                answers[delta.id][1].extend(delta.logprobs or [])
                if delta.finish:
                    running.discard(delta.id)
        self.engine.audit()
        return [answers[i] for i in ids]


@pytest.fixture(scope="module", params=["GptOss", "Mistral"])
def folder(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Windows in some layers (and experts), or in all."""
    if request.param == "GptOss":
        fields = {"head_dim": 16, "sliding_window": WINDOW, "num_hidden_layers": 3, "num_local_experts": 5}
        fields |= {"num_experts_per_tok": 2}
        case = family_models.Case("GptOss", fields)
    else:
        case = family_models.Case("Mistral", {"sliding_window": WINDOW, "num_hidden_layers": 2})
    path = tmp_path_factory.mktemp("windows")
    family_models.make(case).save_pretrained(path)
    return path


@pytest.fixture(scope="module")
def prompts() -> list[list[int]]:
    """Of different length; two have 150 tokens in common with the longest."""
    rng = np.random.default_rng(3)
    texts = [rng.integers(3, 300, n).tolist() for n in LENGTHS]
    texts[4] = texts[6][:150]
    texts[5] = texts[6][:140] + texts[5][140:]
    return texts


@pytest.fixture(scope="module")
def alone(folder: Path, prompts: list[list[int]]) -> list[Answer]:
    with Served(folder, threads=1, enable_prefix_caching=False) as served:
        return [served.run([prompt])[0] for prompt in prompts]


OPTIONS: dict[str, dict[str, Any]] = {
    "together": {},
    "in small chunks": {"max_num_batched_tokens": 16, "max_num_seqs": 8},
    "with few blocks": {
        "num_blocks": 33,
        "max_num_seqs": 6,
        "max_num_batched_tokens": 64,
        "max_model_len": 256,
    },
    "without a prefix cache": {"enable_prefix_caching": False, "threads": 1},
}


@pytest.mark.parametrize("how", OPTIONS)
def test_the_same_bits_in_any_company_cold_and_warm(
    folder: Path, prompts: list[list[int]], alone: list[Answer], how: str
) -> None:
    with Served(folder, **({"threads": 2} | OPTIONS[how])) as served:
        assert served.run(prompts) == alone
        assert served.run(prompts[::-1]) == alone[::-1]
        stats = served.engine.stats()
        assert stats["live_blocks"] == 0
        if how == "together":
            assert stats["prefix_hits"] >= 200
        if how == "with few blocks" and stats["total_blocks"] > 33:  # a layer keeps everything
            assert stats["preemptions"] > 0


def test_a_long_sequence_keeps_only_its_window(folder: Path) -> None:
    """The pool of the window's layers is far smaller than the sequence; a block more than the window is never live."""
    prompt = np.random.default_rng(5).integers(3, 300, 400).tolist()
    options = {"max_num_seqs": 1, "max_num_batched_tokens": 16, "threads": 1}
    with Served(folder, **options) as served:
        groups = _engine.kv_groups(
            served_config(folder), kv_dtype="f32", block_size=BLOCK, max_num_seqs=1, max_num_batched_tokens=16
        )
        most = [blocks or 512 for _, blocks in groups]
        assert served.engine.stats()["total_blocks"] == sum(most)
        assert most[1:] in ([], [2 * (WINDOW // BLOCK + 2 + 2)])
        assert served.engine.info()["kv_bytes"] == sum(
            size * blocks for (size, _), blocks in zip(groups, most, strict=True)
        )
        served.run([prompt])
    if len(groups) == 1:  # all layers have the window: so few blocks hold any length
        with Served(folder, num_blocks=WINDOW // BLOCK + 4, **options) as served:
            served.run([prompt])
            assert served.engine.stats()["preemptions"] == 0


def served_config(path: Path) -> _engine.ModelConfig:
    return open_checkpoint(path).config


def test_keys_and_values_of_every_layer_can_be_seen(folder: Path, prompts: list[list[int]]) -> None:
    config = served_config(folder)
    with Served(folder) as served:
        served.run(prompts[:1])
        served.engine.pause()
        for layer in range(config.num_layers):
            k, v = served.engine.kv_view(layer)
            assert np.abs(np.from_dlpack(k)[0]).max() > 0 and np.abs(np.from_dlpack(v)[0]).max() > 0
        with pytest.raises(Exception, match="layer must be from 0 to"):
            served.engine.kv_view(config.num_layers)
        del k, v
        served.engine.resume()
