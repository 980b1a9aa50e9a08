"""When the mock server sends what."""

from __future__ import annotations

import random
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Pace:
    """Times in seconds.

    Attributes:
        ttft: from the request to its first token.
        ttft_spread: uniformly distributed extra of the first token, so that percentiles differ and are known:
            the q-th is ``ttft + q / 100 * ttft_spread``.
        itl: between chunks.
        tokens_per_chunk: tokens that a chunk carries.
        max_num_seqs: requests answered at once; the others wait in order of arrival. None: no limit.
    """

    ttft: float = 0.1
    ttft_spread: float = 0.0
    itl: float = 0.01
    tokens_per_chunk: int = 1
    max_num_seqs: int | None = None

    def first_token(self, rng: random.Random) -> float:
        """Seconds to the first token of one request."""
        return self.ttft + rng.random() * self.ttft_spread
