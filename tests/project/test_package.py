"""What the package promises about itself: one version, light imports, nothing of one machine."""

from __future__ import annotations

import re
import subprocess
import sys
from importlib import metadata
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from test_layout import ROOT, tracked

import octavo

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())


def pinned(name: str) -> dict[str, str]:
    """Package → version of a lock file, the line for this interpreter where there are several."""
    pins = {}
    for line in (ROOT / name).read_text().splitlines():
        if line and not line.startswith(("#", "-")):
            requirement = Requirement(line)
            if requirement.marker is None or requirement.marker.evaluate():
                (spec,) = requirement.specifier
                assert spec.operator == "==", f"{name}: {line} is not pinned"
                pins[requirement.name.lower().replace("_", "-")] = spec.version
    return pins


def requirements(table: str) -> list[Requirement]:
    project = PYPROJECT["project"]
    lines = {
        "build": PYPROJECT["build-system"]["requires"],
        "run": project["dependencies"],
        **project["optional-dependencies"],
    }[table]
    found = [Requirement(line) for line in lines]
    return [r for r in found if r.marker is None or r.marker.evaluate()]


def assert_pinned(table: str, pins: dict[str, str]) -> None:
    for requirement in requirements(table):
        version = pins.get(requirement.name.lower())
        assert version and requirement.specifier.contains(version), f"{requirement}: locked at {version}"


def test_one_version() -> None:
    assert octavo.__version__ == PYPROJECT["project"]["version"]
    assert f"## {octavo.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_version_is_the_installed_one() -> None:
    try:
        installed = metadata.version("octavo")
    except metadata.PackageNotFoundError:
        pytest.skip("octavo runs from the source tree, not installed")
    assert installed == octavo.__version__


@pytest.mark.parametrize("table", ["build", "run", "torch"])
def test_the_lock_pins_what_the_project_requires(table: str) -> None:
    assert_pinned(table, pinned("requirements.lock"))


@pytest.mark.parametrize("table", ["test", "lint"])
def test_the_test_lock_pins_the_tools(table: str) -> None:
    assert_pinned(table, pinned("requirements.lock") | pinned("requirements-test.lock"))


def test_importing_octavo_is_light() -> None:
    code = (
        "import sys, octavo, octavo._engine, octavo.errors;"
        "print([m for m in ('torch', 'transformers', 'aiohttp', 'numpy.ma') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() == "[]"


def test_no_paths_of_a_machine_in_the_repository() -> None:
    home = Path.home()
    roots = [str(ROOT) + "/"] + ([str(home) + "/"] if len(str(home)) > 2 else [])
    wrong = [
        f"{path.relative_to(ROOT)}: {root}"
        for path in tracked("*")
        for root in roots
        if root.encode() in path.read_bytes()
    ]
    assert not wrong, "\n".join(wrong)


def test_nothing_left_open_in_the_code() -> None:
    words = re.compile(r"\b(TODO|FIXME|XXX|NotImplementedError)\b")
    wrong = [
        f"{path.relative_to(ROOT)}:{number}"
        for path in tracked("engine/*", "python/*", "gateway/*", "bench/*")
        for number, line in enumerate(path.read_text().splitlines(), 1)
        if words.search(line)
    ]
    assert not wrong, "\n".join(wrong)
