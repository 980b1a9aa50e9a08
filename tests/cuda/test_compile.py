"""The CUDA backend compiles with nvcc, where there is one, into a library that needs no CUDA library to be loaded."""

from __future__ import annotations

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
# `make cuda` compiles for all.
ARCHITECTURES = os.environ.get("OCTAVO_CUDA_ARCHITECTURES", "80-real")


def compiler() -> str:
    """nvcc's path; the test is skipped where there is none."""
    places = [shutil.which("nvcc"), "/usr/local/cuda/bin/nvcc"]
    if importlib.util.find_spec("nvidia") and (spec := importlib.util.find_spec("nvidia.cu13")):
        places += [f"{folder}/bin/nvcc" for folder in spec.submodule_search_locations or []]
    for place in places:
        if place and Path(place).exists():
            return place
    pytest.skip("no CUDA compiler (nvcc) on this machine")


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.unsanitized("builds the library by itself")
def test_the_backend_compiles_and_loads_without_a_gpu(tmp_path: Path) -> None:
    nanobind = pytest.importorskip("nanobind")
    if not (cmake := shutil.which("cmake")) or not shutil.which("ninja"):
        pytest.skip("cmake and ninja are not on the PATH")
    environment = os.environ | {"CUDACXX": compiler()}
    configure = [cmake, "-G", "Ninja", "-S", ROOT, "-B", tmp_path, "-DCMAKE_BUILD_TYPE=Release"]
    options = {
        "OCTAVO_CUDA": "on",
        "OCTAVO_CUDA_ARCHITECTURES": ARCHITECTURES,
        "OCTAVO_CUDA_EMULATOR": "OFF",
        "Python_EXECUTABLE": sys.executable,
        "nanobind_DIR": nanobind.cmake_dir(),
    }
    for command in (
        [*configure, *(f"-D{name}={value}" for name, value in options.items())],
        [cmake, "--build", tmp_path, "--target", "octavo_cuda", "--parallel", "2"],
    ):
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    library = tmp_path / "engine" / "bind" / "liboctavo_cuda.so"
    needed = subprocess.run(["ldd", library], capture_output=True, text=True, check=True).stdout
    assert not re.search(r"libcu|libnv", needed), needed
    assert ctypes.CDLL(str(library)).octavo_backend_plugin
