"""The list of behaviours names tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

HERE = Path(__file__).parent
LIST = HERE.parents[1] / "docs" / "behaviours.md"


def test_every_named_test_exists() -> None:
    file = ""
    named = re.findall(r"`((?:\.\./[\w/]+/)?test_\w+\.py)?(?:::(test_\w+))?`", LIST.read_text())
    assert len(named) > 40
    for name, function in named:
        file = name or file
        text = (HERE / file).read_text()
        assert not function or f"def {function}(" in text, (file, function)
