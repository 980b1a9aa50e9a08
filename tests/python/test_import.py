from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

import octavo


def test_importing_octavo_is_cheap_and_pulls_in_no_framework() -> None:
    code = (
        "import sys, time; t = time.process_time(); import octavo; dt = time.process_time() - t\n"
        "bad = {'torch', 'transformers', 'tokenizers', 'jinja2', 'numpy', 'huggingface_hub'} & set(sys.modules)\n"
        "print(dt, sorted(bad))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    seconds, modules = out.split(" ", 1)
    assert float(seconds) < 0.3
    assert modules.strip() == "[]"


def test_every_public_name_is_loadable_and_listed() -> None:
    for name in octavo.__all__:
        assert getattr(octavo, name) is not None
        assert name in dir(octavo)
    with pytest.raises(AttributeError, match="no_such_thing"):
        octavo.no_such_thing  # noqa: B018


def test_the_version_is_the_projects() -> None:
    pyproject = (Path(__file__).parents[2] / "pyproject.toml").read_text()
    assert octavo.__version__ in re.findall(r'^version = "(.+)"$', pyproject, re.M)
