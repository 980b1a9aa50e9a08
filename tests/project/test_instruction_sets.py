"""Nothing but the files compiled for AVX2 needs AVX2, so the package runs on machines without it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest
from test_layout import ROOT

from octavo import _engine

# Measures the machine itself: its loops carry a target attribute of their own and run where AVX2 was detected.
DISPATCHES_ITSELF = {"ceilings.cpp.o"}


def objects() -> list[tuple[Path, bool]]:
    """The object files behind the extension under test, and whether each was compiled for AVX2."""
    extension = Path(_engine.__file__).resolve()
    for folder in sorted(ROOT.glob("build/*")):
        commands = folder / "compile_commands.json"
        if commands.is_file() and folder in extension.parents:
            break
    else:
        pytest.skip("the extension was not built in this checkout")
    found = []
    for entry in json.loads(commands.read_text()):
        output = re.search(r" -o (\S+\.o)", entry["command"])
        assert output
        if "/engine/" in entry["file"]:
            found.append((Path(entry["directory"]) / output.group(1), "-mavx2" in entry["command"]))
    assert found
    return found


def tool(name: str, *arguments: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.run([name, *arguments], capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.unsanitized("looks at the normal build's object files")
def test_no_wide_vectors_outside_the_avx2_files() -> None:
    wrong = [
        path.name
        for path, avx2 in objects()
        if not avx2
        and path.name not in DISPATCHES_ITSELF
        and re.search(r"%[yz]mm\d", tool("objdump", "-d", "--no-show-raw-insn", str(path)))
    ]
    assert not wrong


@pytest.mark.unsanitized("looks at the normal build's object files")
def test_the_avx2_files_share_no_code_with_the_others() -> None:
    """An inline function emitted by an AVX2 file could be the copy that the linker keeps for everybody."""
    wrong = []
    for path, avx2 in objects():
        if avx2:
            for line in tool("nm", "-C", "--defined-only", str(path)).splitlines():
                _, kind, name = line.split(maxsplit=2)
                if kind in "WVu":
                    wrong.append(f"{path.name}: {name}")
    assert not wrong, "\n".join(wrong)
