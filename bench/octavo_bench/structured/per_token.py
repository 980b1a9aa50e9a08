"""The grammar alone: what a mask and taking a token in cost, over texts that a model wrote."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo import LLM


@dataclass(frozen=True)
class Cost:
    """Microseconds per token."""

    mean: float
    p50: float
    p99: float

    def as_dict(self) -> dict[str, float]:
        return asdict(self)


def measure(llm: LLM, schema: dict[str, Any], texts: Sequence[Sequence[int]]) -> dict[str, Cost]:
    """Filling the mask, accepting the token and listing what it forces, each once per token of ``texts``."""
    from octavo.structured import StructuredOutputsParams

    grammar = llm.model.grammars.compile(StructuredOutputsParams(json=schema).spec()).native
    vocab = llm.model.vocab_size
    times: dict[str, list[float]] = {"mask": [], "accept": [], "forced": []}
    for ids in texts:
        constraint = grammar.start()
        for token in ids:
            marks = [time.thread_time_ns()]
            constraint.fill_mask(vocab)
            marks.append(time.thread_time_ns())
            constraint.accept(token)
            marks.append(time.thread_time_ns())
            constraint.forced()
            marks.append(time.thread_time_ns())
            for name, start, end in zip(times, marks, marks[1:], strict=False):
                times[name].append((end - start) / 1e3)
    times["all"] = [sum(each) for each in zip(*times.values(), strict=True)]
    return {name: _cost(values) for name, values in times.items()}


def _cost(values: Sequence[float]) -> Cost:
    ordered = sorted(values)
    return Cost(sum(ordered) / len(ordered), ordered[len(ordered) // 2], ordered[len(ordered) * 99 // 100])
