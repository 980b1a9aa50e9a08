"""Judges live in an environment of their own, `make judges`, so that their needs decide nothing here."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
sys.path.insert(0, str(ROOT / "tests" / "gateway"))

from served import Served, octavo_serve  # noqa: E402

MODEL = "judged"


class Judges:
    """Runs a judge's program against a server; offline, whatever the judge would like to fetch."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.bin = folder / "py" / "bin"

    def need(self, path: str) -> None:
        if not (self.folder / path).exists():
            pytest.skip(f"{path} is not installed: run `make judges`")

    def run(
        self, command: list[str], cwd: Path, seconds: float, **environment: str
    ) -> subprocess.CompletedProcess[str]:
        quiet = {"HF_HUB_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1", "LITELLM_LOCAL_MODEL_COST_MAP": "True"}
        inherited = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
        return subprocess.run(
            command,
            cwd=cwd,
            env={**inherited, **quiet, **environment},
            timeout=seconds,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )


@pytest.fixture(scope="session")
def judges() -> Judges:
    return Judges(ROOT / ".judges")


@pytest.fixture(scope="session")
def tiny(tiny_folder: Path) -> Iterator[Served]:
    """A model of noise that answers at once, for judges of the form."""
    with octavo_serve(
        str(tiny_folder), *("--served-model-name", MODEL, "--max-model-len", "256", "--threads", "1")
    ) as server:
        yield server


@pytest.fixture(scope="session")
def default() -> Iterator[Served]:
    """The default model, for judges that want sense."""
    with octavo_serve("--served-model-name", MODEL, "--max-model-len", "2048", "--threads", "1") as server:
        yield server


@pytest.fixture(scope="session")
def float32(float32_folder: Path) -> Iterator[Served]:
    """The default model in float32 throughout, for judges of the numbers."""
    with octavo_serve(
        str(float32_folder),
        *(
            "--served-model-name",
            MODEL,
            "--max-model-len",
            "512",
            "--threads",
            "1",
            "--kv-cache-dtype",
            "f32",
        ),
    ) as server:
        yield server
