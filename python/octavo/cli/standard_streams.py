"""Standard input and output, which may be closed, full, or of an encoding that lacks characters."""

from __future__ import annotations

import contextlib
import io
import os
import sys
from collections.abc import Iterator

from octavo.errors import InvalidArgumentError


def replace_what_cannot_be_shown() -> None:
    """A character that the output's encoding lacks is printed as a question mark."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")


@contextlib.contextmanager
def reading_input() -> Iterator[None]:
    """Around reads of standard input: what keeps it from being text is an error that says so."""
    if sys.stdin is None:
        raise InvalidArgumentError("standard input is closed: nothing can be read from it", param="stdin")
    try:
        yield
    except (OSError, UnicodeDecodeError) as error:
        if isinstance(error, OSError) and output_failure() is not None:  # input() writes, too
            raise
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidArgumentError(f"standard input cannot be read: {reason}", param="stdin") from error


def flush_output() -> None:
    """Write what was printed now, not after the last chance to tell that it cannot be written."""
    if sys.stdout is not None:
        sys.stdout.flush()


def output_failure() -> str | None:
    """Why standard output takes not even the end of a line, None where it does."""
    try:
        print(flush=True)
    except OSError as error:
        return error.strerror
    return None


def drop_output() -> None:
    """What has been printed, and is from here on, goes nowhere."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
