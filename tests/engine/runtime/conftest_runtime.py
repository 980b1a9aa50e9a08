"""A tiny random model, enough to exercise the engine's life: what it says does not matter here."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

from octavo import _engine

VOCAB = 96
EOS = 1


def tiny_config(positions: int = 512) -> _engine.ModelConfig:
    config = _engine.ModelConfig()
    config.architecture = "llama"
    config.num_layers, config.hidden, config.intermediate = 2, 64, 128
    config.heads, config.kv_heads, config.head_dim = 4, 2, 16
    config.vocab, config.max_positions = VOCAB, positions
    config.tied_embeddings = True
    config.eos_token_ids = [EOS]
    rope = _engine.RopeConfig()
    rope.rotary_dim = 16
    config.rope = rope
    return config


def tiny_weights() -> _engine.WeightFiles:
    rng = np.random.default_rng(7)

    def matrix(*shape: int) -> np.ndarray:
        return (rng.standard_normal(shape) * 0.3).astype(np.float32)

    tensors = {"model.embed_tokens.weight": matrix(VOCAB, 64), "model.norm.weight": np.ones(64, np.float32)}
    for i in range(2):
        p = f"model.layers.{i}."
        tensors |= {
            p + "input_layernorm.weight": np.ones(64, np.float32),
            p + "post_attention_layernorm.weight": np.ones(64, np.float32),
            p + "self_attn.q_proj.weight": matrix(64, 64),
            p + "self_attn.k_proj.weight": matrix(32, 64),
            p + "self_attn.v_proj.weight": matrix(32, 64),
            p + "self_attn.o_proj.weight": matrix(64, 64),
            p + "mlp.gate_proj.weight": matrix(128, 64),
            p + "mlp.up_proj.weight": matrix(128, 64),
            p + "mlp.down_proj.weight": matrix(64, 128),
        }
    return _engine.WeightFiles.from_tensors(tensors)


def tiny_table() -> _engine.TokenTable:
    """Token i stands for one printable character."""
    text = bytes(range(32, 32 + VOCAB - 1)) + b"~"
    return _engine.TokenTable(
        text, np.arange(VOCAB + 1, dtype=np.uint32), np.zeros(VOCAB, dtype=np.uint8), False
    )


def make_engine(positions: int = 512, **options: object) -> _engine.Engine:
    settings: dict[str, object] = {"num_blocks": 64, "max_num_seqs": 16, "threads": 1} | options
    engine = _engine.Engine(tiny_config(positions), tiny_weights(), **settings)
    engine.start(tiny_table())
    return engine


@pytest.fixture
def engine() -> Iterator[_engine.Engine]:
    e = make_engine()
    yield e
    e.shutdown()


def params(**fields: object) -> _engine.SamplingParams:
    p = _engine.SamplingParams()
    p.temperature, p.max_tokens = 0.0, 8
    for name, value in fields.items():
        setattr(p, name, value)
    return p


def collect(
    channel: _engine.Channel, ids: list[int], seconds: float = 20.0
) -> dict[int, list[_engine.Delta]]:
    """Every delta of the requests until each has finished."""
    import time

    out: dict[int, list[_engine.Delta]] = {i: [] for i in ids}
    open_ids = set(ids)
    end = time.monotonic() + seconds
    while open_ids:
        assert time.monotonic() < end, f"requests {open_ids} did not finish"
        channel.wait(100)
        for delta in channel.drain():
            if delta.id in out:
                out[delta.id].append(delta)
                if delta.finish is not None:
                    open_ids.discard(delta.id)
    return out


def tokens(deltas: list[_engine.Delta]) -> list[int]:
    return [t for d in deltas for t in d.token_ids]
