"""How long a step takes on the machine that the study imagines."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class StepCost:
    """seconds = max(weights, tokens * token) + positions read * position.

    Reading the weights and computing overlap, so the longer of the two counts; attention reads the K and V of every
    position that a row looks at (a chunk of a prompt reads them once).

    Attributes:
        weights: seconds to read the weights once.
        token: seconds to compute one token of the batch.
        position: seconds to read one cached position.
    """

    weights: float
    token: float
    position: float

    def seconds(self, plan: Mapping[str, Any]) -> float:
        tokens = read = 0
        for row in plan["rows"]:
            tokens += row["n_tokens"]
            read += row["first_pos"] + row["n_tokens"]
        return max(self.weights, tokens * self.token) + read * self.position


# A model of 13e9 float16 parameters, 40 layers of width 5120, on an A100 with 40 GB (1.555 TB/s at 80 %, 312 TFLOP/s
# at 50 %): the paper's setting, where 12 GB are left for the cache.
KV_BYTES_13B = 2 * 40 * 5120 * 2
BUDGET_13B = 12 * 10**9
A100_13B = StepCost(
    weights=26e9 / (0.8 * 1.555e12), token=2 * 13e9 / (0.5 * 312e12), position=KV_BYTES_13B / (0.8 * 1.555e12)
)
