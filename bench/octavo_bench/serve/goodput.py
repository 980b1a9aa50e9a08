"""What counts as a good answer."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from octavo.errors import InvalidArgumentError
from octavo_bench.client import Record

METRICS = ("ttft", "tpot", "e2el")


@dataclass(frozen=True, slots=True)
class Goodput:
    """Limits in seconds by metric; a request is good when it meets all of them."""

    limits: Mapping[str, float]

    @classmethod
    def parse(cls, pairs: Sequence[str]) -> Goodput:
        """From ``ttft:500 tpot:50``, milliseconds."""
        limits = {}
        for pair in pairs:
            name, colon, text = pair.partition(":")
            try:
                value = float(text)
            except ValueError:
                value = math.nan
            if not colon or name not in METRICS or not value >= 0:
                raise InvalidArgumentError(
                    f"goodput {pair!r}: METRIC:MILLISECONDS with one of {', '.join(METRICS)}", param="goodput"
                )
            limits[name] = value / 1e3
        return cls(limits)

    def is_good(self, record: Record) -> bool:
        """A failed request is not good; a time that there is none of is met."""
        values = {"ttft": record.ttft, "tpot": record.tpot, "e2el": record.latency}
        return record.ok and all((values[name] or 0.0) <= limit for name, limit in self.limits.items())

    def count(self, records: Sequence[Record]) -> tuple[int, float]:
        """How many are good, and their share among those that were to be answered in full, failures included.

        Requests whose client hangs up or reads slowly are not asked.
        """
        asked = [r for r in records if not r.cancelled and not r.slow_reader]
        good = sum(map(self.is_good, asked))
        return good, good / len(asked) if asked else math.nan
