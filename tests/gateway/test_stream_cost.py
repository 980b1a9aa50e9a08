"""The event loop's work per streamed chunk stays small: it decides how many streams one core can carry."""

from __future__ import annotations

from pathlib import Path

import pytest
from stream_cost import microseconds_per_chunk


@pytest.mark.slow
@pytest.mark.unsanitized("measures time")
def test_a_chunk_costs_microseconds(tiny_folder: Path) -> None:
    import uvloop

    costs = uvloop.run(microseconds_per_chunk(str(tiny_folder), 300, 5))
    assert min(costs) < 50, costs
