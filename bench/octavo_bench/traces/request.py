"""One request of a trace, and lengths drawn where there is no trace."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True, slots=True)
class TraceRequest:
    """When a request arrived and how long it was.

    Attributes:
        arrival_s: seconds after the first request of the trace.
        prompt_tokens, output_tokens: lengths, at least 1.
        prompt: the text itself, where the trace holds it.
        blocks: names of the prompt's blocks of 512 tokens (Mooncake): equal names in front are equal prefixes.
    """

    arrival_s: float
    prompt_tokens: int
    output_tokens: int
    prompt: str | None = None
    blocks: tuple[int, ...] = ()


def lognormal_lengths(
    count: int,
    seed: int,
    *,
    prompt_median: float = 120.0,
    prompt_sigma: float = 1.2,
    output_median: float = 190.0,
    output_sigma: float = 1.0,
    longest: int = 2048,
    rate: float | None = None,
) -> list[TraceRequest]:
    """``count`` requests with log-normal lengths; the default shape is like ShareGPT's (means near 240 and 310).

    Args:
        longest: no prompt and no output is longer than this.
        rate: requests per second, as a Poisson process; None: all arrive at once.
    """
    rng = np.random.default_rng([seed, 0x6C656E])
    prompts = np.clip(rng.lognormal(np.log(prompt_median), prompt_sigma, count), 1, longest).astype(int)
    outputs = np.clip(rng.lognormal(np.log(output_median), output_sigma, count), 1, longest).astype(int)
    gaps = rng.exponential(1 / rate, count) if rate else np.zeros(count)
    arrivals = np.cumsum(gaps) - (gaps[0] if count else 0.0)
    return [
        TraceRequest(float(a), int(p), int(o)) for a, p, o in zip(arrivals, prompts, outputs, strict=True)
    ]
