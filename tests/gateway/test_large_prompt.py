"""A large prompt delays nobody: measured by `large_prompt.py`, with bounds for a machine that does other things too."""

from __future__ import annotations

import asyncio

import pytest
from large_prompt import ARGUMENTS, LARGE, measure
from served import octavo_serve


@pytest.mark.slow
@pytest.mark.unsanitized("measures time")
def test_a_large_prompt_delays_neither_streams_nor_health() -> None:
    """Behaviour 88: with 64 streams under way, and every token of the prompt made."""
    with octavo_serve(*ARGUMENTS) as server:
        figures = asyncio.run(measure(server.port))
    assert figures.statuses == [400] * len(LARGE), figures
    assert figures.health_p99 < 0.25, figures
    assert figures.gaps[0] < 4 * figures.usual_gaps[0] + 0.25, figures
    assert figures.gaps[1] < 6 * max(figures.usual_gaps) + 1, figures
