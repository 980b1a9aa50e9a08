"""The libraries of the CUDA emulator, which lie beside the extension in a build with OCTAVO_CUDA_EMULATOR."""

import ctypes
import pathlib

import octavo._engine
import pytest


def library_path(name: str) -> pathlib.Path:
    """Path of the module `lib<name>.so`; the test is skipped where the build left it out."""
    path = pathlib.Path(octavo._engine.__file__).resolve().parent / f"lib{name}.so"
    if not path.exists():
        pytest.skip("this build of octavo has no CUDA emulator")
    return path


def load(name: str) -> ctypes.CDLL:
    """The module, loaded."""
    return ctypes.CDLL(str(library_path(name)))
