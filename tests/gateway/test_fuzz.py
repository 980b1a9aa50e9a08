"""Requests made from the schema: valid, nearly valid, absurd. `request_fuzzer.py` sends as many as one likes."""

from __future__ import annotations

import pytest
from request_fuzzer import fuzz
from served import Served


@pytest.mark.parametrize(
    ("count", "seed"),
    [
        pytest.param(300, 1, id="some"),
        pytest.param(1000, 2, id="many", marks=pytest.mark.slow),
    ],
)
def test_nothing_breaks_it_and_nothing_stays(tiny: Served, count: int, seed: int) -> None:
    """Behaviours 24, 32 and 34: no 5xx, no hang, and a golden request in between keeps its bits."""
    _, document = tiny.request("GET", "/openapi.json")
    outcome = fuzz(tiny.port, document, count, seed, every=50)
    assert not outcome.problems, outcome.problems[:5]
    assert sum(outcome.statuses.values()) == count
    assert min(outcome.statuses[200], outcome.statuses[400]) > count // 5, "one-sided requests"
    assert outcome.slowest < 20
    assert tiny.settles(10)
