"""The documents agree with the code."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import Any

import flag_tables
import pytest
from test_layout import ROOT

PAGES = [ROOT / "README.md", ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs").glob("*.md"))]


def test_every_flag_is_documented() -> None:
    assert flag_tables.PAGE.read_text() == flag_tables.page(), "run `make docs`"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page) -> None:
    for target in re.findall(r"\]\(([^)#\s]+)", page.read_text()):
        if not target.startswith("http"):
            assert (page.parent / target).exists(), target


def examples() -> list[Any]:
    """Every Python block of the pages but those that need a server."""
    return [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in PAGES
        for number, block in enumerate(re.findall(r"```python\n(.*?)```", page.read_text(), re.DOTALL))
        if "base_url" not in block
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("smollm2")
@pytest.mark.parametrize("code", examples())
def test_python_examples_run(code: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=240, check=False
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip()


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_examples_name_the_command_in_one_way(page) -> None:
    blocks = re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL)
    assert not [line for block in blocks for line in block.splitlines() if re.match(r" *octavo ", line)]


def test_every_page_is_linked() -> None:
    linked = {
        (page.parent / target).resolve()
        for page in PAGES
        for target in re.findall(r"\]\(([^)#\s]+)", page.read_text())
        if not target.startswith("http")
    }
    assert not set(PAGES) - linked - {ROOT / "README.md"}


def test_readme_commands_are_make_targets() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    used = set(re.findall(r"^make ([a-z-]+)", (ROOT / "README.md").read_text(), re.MULTILINE))
    assert {"serve", "test"} <= used <= targets
