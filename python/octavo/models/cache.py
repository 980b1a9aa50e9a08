"""The folder that models are downloaded into, and the lock that keeps two pulls of one model apart."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path

from octavo.errors import ModelError


def cache_dir(override: str | os.PathLike[str] | None = None) -> Path:
    """``override``, else ``$OCTAVO_CACHE``, else ``$XDG_CACHE_HOME/octavo``, else ``~/.cache/octavo``."""
    if override is not None:
        return Path(override).expanduser()
    if from_env := os.environ.get("OCTAVO_CACHE"):
        return Path(from_env).expanduser()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "octavo"


@contextlib.contextmanager
def exclusive(path: Path) -> Iterator[None]:
    """Hold the lock file ``path`` against other processes and threads; the system drops it if this process dies."""
    import fcntl

    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle = open(path, "wb")  # noqa: SIM115 - closed below, the lock lives as long as the handle
    except OSError as error:
        raise ModelError(
            f"the model cache {str(path.parent)!r} is not writable: {error.strerror}; choose another folder with "
            "OCTAVO_CACHE or --cache-dir",
            code="not_found",
            param="cache_dir",
        ) from error
    with handle:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
