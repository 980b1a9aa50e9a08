"""A full batch that decodes with and without a grammar, in turn."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo import LLM, SamplingParams

# A document that does not end within any number of tokens that is asked for here.
SCHEMA: dict[str, Any] = {
    "type": "array",
    "minItems": 100000,
    "items": {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "age": {"type": "integer"},
            "status": {"enum": ["active", "retired", "unknown"]},
            "tags": {"type": "array", "items": {"type": "string"}},
            "address": {
                "type": "object",
                "properties": {
                    "city": {"type": "string"},
                    "zip": {"type": "string", "pattern": "^[0-9]{5}$"},
                },
                "required": ["city", "zip"],
                "additionalProperties": False,
            },
        },
        "required": ["name", "age", "status", "tags", "address"],
        "additionalProperties": False,
    },
}


@dataclass(frozen=True)
class Rate:
    """Of the best round.

    Attributes:
        step_ms: a step of the engine, mean.
        cpu_us: CPU time of the process per token.
        forced: share of the tokens that were not sampled.
    """

    tokens_per_second: float
    step_ms: float
    cpu_us: float
    forced: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def measure(
    llm: LLM, schema: dict[str, Any], streams: int, tokens: int, rounds: int
) -> tuple[dict[str, Rate], list[list[int]]]:
    """The rates without a grammar, with it, and with it but every token sampled; and what the second generated."""
    from octavo import SamplingParams

    common: dict[str, Any] = {"temperature": 1.0, "max_tokens": tokens, "ignore_eos": True}
    held: dict[str, Any] = {**common, "structured_outputs": {"json": schema}}
    modes: dict[str, dict[str, Any]] = {
        "free": common,
        "grammar": held,
        # A word that nobody says: with it forced text is sampled too.
        "sampled": {**held, "bad_words": ["\u2603\u2603\u2603"]},
    }
    best: dict[str, Rate] = {}
    outputs: list[list[int]] = []
    for round_ in range(rounds + 1):  # the first warms up
        for name, values in modes.items():
            rate, made = _run(llm, [SamplingParams(seed=1000 * round_ + i, **values) for i in range(streams)])
            if name == "grammar":
                outputs = made
            if round_ and (name not in best or rate.tokens_per_second > best[name].tokens_per_second):
                best[name] = rate
    return best, outputs


def _run(llm: LLM, params: list[SamplingParams]) -> tuple[Rate, list[list[int]]]:
    prompts = [f"Person {i} and friends as a JSON list: " for i in range(len(params))]
    before, cpu, start = llm.stats(), time.process_time(), time.perf_counter()
    outputs = [output.outputs[0].token_ids for output in llm.generate(prompts, params, use_tqdm=False)]
    seconds, cpu, after = time.perf_counter() - start, time.process_time() - cpu, llm.stats()
    grown = {name: after[name] - before[name] for name in ("generation_tokens", "forced_tokens", "steps")}
    spent = sum(after[name] - before[name] for name in ("execute_ns", "host_ns"))
    tokens = grown["generation_tokens"]
    return (
        Rate(
            tokens / seconds,
            spent / max(grown["steps"], 1) / 1e6,
            1e6 * cpu / tokens,
            grown["forced_tokens"] / tokens,
        ),
        [list(ids) for ids in outputs],
    )
