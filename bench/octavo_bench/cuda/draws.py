"""Tokens drawn on the device are those that the host draws from the same logits."""

from __future__ import annotations

import random
from typing import Any

import numpy as np

from octavo import _engine
from octavo_bench.cuda.report import check
from octavo_bench.cuda.scale import Scale


def _params(draw: random.Random, vocab: int) -> _engine.SamplingParams:
    params = _engine.SamplingParams()
    fields: dict[str, Any] = {
        "temperature": draw.choice([0.0, 0.5, 1.0, 2.0]),
        "top_k": draw.choice([0, 0, 1, 40, 1000]),
        "top_p": draw.choice([1.0, 0.95, 0.3]),
        "min_p": draw.choice([0.0, 0.0, 0.05]),
        "repetition_penalty": draw.choice([1.0, 1.0, 1.2]),
        "frequency_penalty": draw.choice([0.0, 0.0, 0.6]),
        "logit_bias": [(draw.randrange(vocab), 4.0)] if draw.random() < 0.3 else [],
        "seed": draw.randrange(2**60),
        "max_tokens": 16,
    }
    for name, value in fields.items():
        setattr(params, name, value)
    return params


def run(scale: Scale) -> None:
    """Steps of a full batch, each with its own parameters; penalties are kept up on the device."""
    draw, numbers = random.Random(3), np.random.default_rng(3)
    rows, steps = scale.batches[-1] // 4 or 1, 4
    device = _engine.DeviceDraws(scale.device, scale.vocab)
    params = [_params(draw, scale.vocab) for _ in range(rows)]
    prompts = [[draw.randrange(scale.vocab) for _ in range(5)] for _ in range(rows)]
    states = [_engine.sampling.SamplerState(p, prompt) for p, prompt in zip(params, prompts, strict=True)]
    for i in range(rows):
        device.add(i, params[i], prompts[i], choice=i)
    last = [prompt[-1] for prompt in prompts]
    wrong = 0
    for step in range(steps):
        logits = (numbers.standard_normal((rows, scale.vocab), dtype=np.float32) * 4).astype(np.float32)
        drawn = device.draw(logits, [(i, 5 + step, last[i]) for i in range(rows)])
        for i in range(rows):
            token = _engine.sampling.sample(logits[i], params[i], states[i], 5 + step, i)
            wrong += drawn[i][1] != token
            states[i].append(token)
            device.accept(i, token)
            last[i] = token
    check(f"{rows * steps} tokens drawn of {scale.vocab}", wrong == 0, wrong, 0)
