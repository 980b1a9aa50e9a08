"""Nothing but the files compiled for AVX2 or AVX-512 needs it, so the package runs on machines without it."""

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


def objects() -> list[tuple[Path, bool, bool]]:
    """The object files behind the extension under test, and whether each was compiled for AVX2 and for AVX-512."""
    extension = Path(_engine.__file__).resolve()
    for folder in extension.parents:
        commands = folder / "compile_commands.json"
        if commands.is_file() and ROOT / "build" in folder.parents:
            break
    else:
        pytest.skip("the extension was not built in this checkout")
    found = []
    for entry in json.loads(commands.read_text()):
        output = re.search(r" -o (\S+\.o)", entry["command"])
        assert output
        if "/engine/" in entry["file"]:
            flags = entry["command"].split()
            path = Path(entry["directory"]) / output.group(1)
            found.append((path, "-mavx2" in flags, "-mavx512f" in flags))
    assert found
    return found


def tool(name: str, *arguments: str) -> str:
    if shutil.which(name) is None:
        pytest.skip(f"{name} is not installed")
    return subprocess.run([name, *arguments], capture_output=True, text=True, check=True, timeout=120).stdout


@pytest.mark.slow
@pytest.mark.unsanitized("looks at the normal build's object files")
def test_no_wide_vectors_outside_the_avx2_files() -> None:
    wrong = [
        path.name
        for path, avx2, _ in objects()
        if not avx2
        and path.name not in DISPATCHES_ITSELF
        and re.search(r"%[yz]mm\d", tool("objdump", "-d", "--no-show-raw-insn", str(path)))
    ]
    assert not wrong


@pytest.mark.unsanitized("looks at the normal build's object files")
def test_no_avx512_registers_outside_the_avx512_files() -> None:
    wrong = [
        path.name
        for path, avx2, avx512 in objects()
        if avx2
        and not avx512
        and re.search(
            r"%zmm|%[xy]mm(1[6-9]|2\d|3[01])|%k\d", tool("objdump", "-d", "--no-show-raw-insn", str(path))
        )
    ]
    assert not wrong


@pytest.mark.slow
@pytest.mark.unsanitized("looks at the normal build's object files")
def test_the_avx2_files_share_no_code_with_the_others() -> None:
    """An inline function emitted by an AVX2 file could be the copy that the linker keeps for everybody."""
    wrong = []
    for path, avx2, _ in objects():
        if avx2:
            for line in tool("nm", "-C", "--defined-only", str(path)).splitlines():
                _, kind, name = line.split(maxsplit=2)
                if kind in "WVu":
                    wrong.append(f"{path.name}: {name}")
    assert not wrong, "\n".join(wrong)
