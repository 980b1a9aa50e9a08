"""The lists of what must hold name tests that exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

HERE = Path(__file__).parent
DOCS = HERE.parents[1] / "docs"


@pytest.mark.parametrize(("page", "root"), [("behaviours.md", HERE), ("robustness.md", HERE.parent)])
def test_every_named_test_exists(page: str, root: Path) -> None:
    file = ""
    named = re.findall(r"`((?:[\w./]+/)?test_\w+\.py)?(?:::(test_\w+))?`", (DOCS / page).read_text())
    assert len(named) > 40
    for name, function in named:
        file = name or file
        text = (root / file).read_text()
        assert not function or f"def {function}(" in text, (file, function)
