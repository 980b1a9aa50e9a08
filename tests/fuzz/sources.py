"""Where a fuzzer finds what it instruments.

An editable install wraps the loaders of its modules, and Atheris cannot instrument what they load. The finder
here takes the modules from their folders instead and leaves the extension to the installation.
"""

from __future__ import annotations

import sys
from collections.abc import Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[2]
FOLDERS = [str(ROOT / "python"), str(ROOT / "gateway")]


class SourceFinder:
    """Finds the modules of `octavo` and `octavo_gateway` that are Python files."""

    @staticmethod
    def find_spec(
        name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name.partition(".")[0] not in ("octavo", "octavo_gateway"):
            return None
        spec = PathFinder.find_spec(name, FOLDERS if path is None else path, target)
        return spec if spec is not None and spec.loader is not None else None


def find_sources_first() -> None:
    sys.meta_path.insert(0, SourceFinder)
