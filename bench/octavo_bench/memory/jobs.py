"""What the study asks of the cache: prompts as token ids and lengths of answers."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from octavo.errors import InvalidArgumentError
from octavo_bench.traces import TraceRequest, lognormal_lengths

# ShareGPT as the PagedAttention paper (SOSP '23, section 6.1) found it: mean lengths of 161 and 338 tokens.
PROMPT_MEAN, PROMPT_SIGMA = 161.31, 1.0
OUTPUT_MEAN, OUTPUT_SIGMA = 337.99, 0.9
LONGEST = 1024  # prompts and answers; longer ones are clipped, as the paper's filter drops them
_MOONCAKE_BLOCK = 512
_IDS = 2**31 - 1


@dataclass(frozen=True, slots=True)
class Job:
    """One request: its prompt, and how many tokens its answer has."""

    arrival: float
    prompt: Sequence[int]
    output: int

    @property
    def length(self) -> int:
        """Tokens in the end."""
        return len(self.prompt) + self.output


def sharegpt_like(count: int, seed: int, rate: float | None = None) -> list[TraceRequest]:
    """Log-normal lengths with ShareGPT's means (a little lower, since the longest are clipped)."""
    return lognormal_lengths(
        count,
        seed,
        prompt_median=PROMPT_MEAN / float(np.exp(PROMPT_SIGMA**2 / 2)),
        prompt_sigma=PROMPT_SIGMA,
        output_median=OUTPUT_MEAN / float(np.exp(OUTPUT_SIGMA**2 / 2)),
        output_sigma=OUTPUT_SIGMA,
        longest=LONGEST,
        rate=rate,
    )


def make_jobs(
    requests: Sequence[TraceRequest],
    *,
    seed: int,
    max_model_len: int,
    shared_prefix: int,
    prefix_groups: int,
) -> list[Job]:
    """Token ids for the lengths of a trace, all distinct but for what the trace or the arguments share.

    Args:
        shared_prefix: so many first tokens of each prompt are one of ``prefix_groups`` system prompts (a shorter
            prompt is the beginning of one). Not for traces that name their blocks: those say themselves what is equal.

    Raises:
        InvalidArgumentError: a request is longer than ``max_model_len``.
    """
    rng = np.random.default_rng([seed, 0x6D656D])
    systems = [_ids(rng, shared_prefix) for _ in range(prefix_groups)]
    jobs = []
    for i, request in enumerate(requests):
        total = request.prompt_tokens + request.output_tokens
        if total > max_model_len:
            raise InvalidArgumentError(
                f"request {i + 1} of the trace has {total} tokens, and --max-model-len is {max_model_len}",
                param="max_model_len",
            )
        ids = _ids(rng, request.prompt_tokens)
        system = systems[int(rng.integers(prefix_groups))] if systems else []
        head = _named(request.blocks, request.prompt_tokens) if request.blocks else system
        n = min(len(head), len(ids) - 1)
        jobs.append(Job(request.arrival_s, head[:n] + ids[n:], request.output_tokens))
    return jobs


def _ids(rng: np.random.Generator, n: int) -> list[int]:
    ids: list[int] = rng.integers(0, _IDS, n).tolist()
    return ids


def _named(blocks: Sequence[int], length: int) -> list[int]:
    """The ids of named blocks: equal names, equal ids."""
    ids: list[int] = []
    for name in blocks:
        if len(ids) >= length:
            break
        ids += _ids(np.random.default_rng([name % 2**63, 0x626C6B]), _MOONCAKE_BLOCK)
    return ids
