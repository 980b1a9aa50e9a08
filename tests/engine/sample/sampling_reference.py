"""The sampler's definition in numpy, by plain sorting and in float64, and helpers that the tests share."""

from __future__ import annotations

import numpy as np

from octavo import _engine

VOCAB = 1000
sampling = _engine.sampling


def params(**fields) -> _engine.SamplingParams:
    p = _engine.SamplingParams()
    for name, value in fields.items():
        assert hasattr(p, name), name
        setattr(p, name, value)
    return p


def logits(seed: int = 0, vocab: int = VOCAB, spread: float = 3.0) -> np.ndarray:
    return (np.random.default_rng(seed).normal(size=vocab) * spread).astype(np.float32)


def state(p: _engine.SamplingParams, prompt=(), output=()):
    s = sampling.SamplerState(p, list(prompt))
    for token in output:
        s.append(token)
    return s


def probabilities(row: np.ndarray, p: _engine.SamplingParams, s=None, mask=None) -> np.ndarray:
    """What the engine draws from, as a dense distribution."""
    out = np.zeros(len(row))
    for token, weight in sampling.distribution(row, p, s or sampling.SamplerState(), mask):
        out[token] = weight
    return out / out.sum()


def expected(row, temperature=1.0, top_k=0, top_p=1.0, min_p=0.0) -> np.ndarray:
    row = row.astype(np.float64)
    weights = np.exp((row - row.max()) / temperature)
    order = np.lexsort((np.arange(len(row)), -row))
    if 0 < top_k < len(row):
        order = order[:top_k]
    if top_p < 1.0:
        mass = np.cumsum(weights[order])
        order = order[: np.searchsorted(mass, top_p * mass[-1]) + 1]
    kept = order[weights[order] >= min_p]
    out = np.zeros(len(row))
    out[kept] = weights[kept]
    return out / out.sum()
