"""Text files that a flag names."""

from __future__ import annotations

from pathlib import Path

from octavo.errors import InvalidArgumentError


def read_text(flag: str, path: str) -> str:
    """The UTF-8 text of a file; an error that names the flag and the file if there is none."""
    try:
        return Path(path).read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        param = flag.removeprefix("--").replace("-", "_")
        raise InvalidArgumentError(f"{flag} {path!r} cannot be read: {reason}", param=param) from error
