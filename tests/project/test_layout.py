"""The layout that ARCHITECTURE.md describes holds in the sources."""

from __future__ import annotations

import ast
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]

# Folder → the folders of the engine that its files may include, itself apart.
ALLOWED = {
    "base": set(),
    "tensor": {"base"},
    "cache": {"base"},
    "plan": {"base"},
    "text": {"base"},
    "sched": {"base", "cache", "plan"},
    "ops": {"base", "tensor"},
    "backend": {"base", "tensor", "ops"},
    "model": {"base", "tensor", "ops"},
    "sample": {"base", "tensor", "ops"},
    "grammar": {"base", "text", "sample"},
    "runtime": {
        "base", "tensor", "cache", "plan", "text", "sched", "ops", "backend", "model", "sample",
    },
    "bind": {
        "base", "tensor", "cache", "plan", "text", "sched", "ops", "backend", "model", "sample", "runtime",
        "grammar",
    },
}  # fmt: skip


def tracked(*patterns: str) -> list[Path]:
    if not (ROOT / ".git").exists():
        pytest.skip("not a git checkout")
    out = subprocess.run(
        ["git", "ls-files", "-z", "--", *patterns], cwd=ROOT, capture_output=True, check=True, text=True
    )
    return [ROOT / name for name in out.stdout.split("\0") if name and (ROOT / name).is_file()]


def sources() -> list[Path]:
    files = tracked("engine/*.h", "engine/*.cpp")
    assert files, "the engine has no sources"
    return files


def includes(path: Path) -> list[str]:
    return re.findall(r'^\s*#\s*include\s*[<"]([^">]+)[">]', path.read_text(), re.MULTILINE)


def imports(path: Path) -> set[str]:
    """Every module that a Python file names in an import, relative ones left out."""
    found = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and node.level == 0:
            found.add(node.module)
    return found


def importing(files: list[Path], packages: set[str]) -> list[str]:
    return sorted(
        f"{path.relative_to(ROOT)} imports {module}"
        for path in files
        for module in imports(path)
        if module.split(".")[0] in packages
    )


def test_every_engine_folder_has_a_place_in_the_order() -> None:
    assert {path.relative_to(ROOT / "engine").parts[0] for path in sources()} <= set(ALLOWED)


def test_engine_includes_follow_the_direction_of_dependency() -> None:
    wrong = []
    for path in sources():
        folder = path.relative_to(ROOT / "engine").parts[0]
        for name in includes(path):
            target = name.split("/")[0]
            if target in ALLOWED and target != folder and target not in ALLOWED[folder]:
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong, "\n".join(wrong)


def test_cache_and_sched_are_integers_only() -> None:
    banned = ("tensor/", "ops/", "backend/", "model/")
    wrong = [
        f"{path.relative_to(ROOT)} includes {name}"
        for path in sources()
        if path.relative_to(ROOT / "engine").parts[0] in ("cache", "plan", "sched")
        for name in includes(path)
        if name.startswith(banned)
    ]
    assert not wrong, "\n".join(wrong)


def test_the_model_never_sees_a_plan() -> None:
    wrong = [
        str(path.relative_to(ROOT))
        for path in tracked("engine/model/*")
        if path.suffix in (".h", ".cpp")
        and any(name.startswith(("plan/", "sched/")) for name in includes(path))
    ]
    assert not wrong


def test_python_headers_stay_in_bind_and_cuda_headers_in_their_backend() -> None:
    wrong = []
    for path in sources():
        parts = path.relative_to(ROOT / "engine").parts
        for name in includes(path):
            if (name == "Python.h" or name.startswith("nanobind/")) and parts[0] != "bind":
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
            if name.startswith("cuda") and parts[:2] != ("backend", "cuda"):
                wrong.append(f"{path.relative_to(ROOT)} includes {name}")
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(("suffix", "limit"), [(".cpp", 450), (".h", 200)])
def test_engine_files_hold_one_idea(suffix: str, limit: int) -> None:
    long = {
        str(path.relative_to(ROOT)): lines
        for path in sources()
        if path.suffix == suffix and (lines := len(path.read_text().splitlines())) > limit
    }
    assert not long, f"over {limit} lines: {long}"


def test_python_package_imports_neither_gateway_nor_bench() -> None:
    assert not importing(tracked("python/*.py"), {"octavo_gateway", "octavo_bench"})


def test_gateway_api_and_protocol_know_no_server() -> None:
    files = tracked("gateway/octavo_gateway/api/*.py", "gateway/octavo_gateway/protocol/*.py")
    assert not importing(files, {"aiohttp", "uvloop"})


def test_only_the_native_libraries_of_every_machine_are_compiled_for() -> None:
    """No flag ties a build to the machine that made it."""
    files = [ROOT / "pyproject.toml", *tracked("*CMakeLists.txt", "*.cmake")]
    assert not [str(path) for path in files if "march=native" in path.read_text()]
