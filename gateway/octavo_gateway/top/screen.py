"""The terminal while the view runs: the alternate screen, and keys as they are pressed."""

from __future__ import annotations

import os
import select
import shutil
import sys
import termios
import tty
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

_ENTER, _LEAVE = "\x1b[?1049h\x1b[?25l", "\x1b[?25h\x1b[?1049l"
_HOME, _CLEAR_LINE, _CLEAR_REST = "\x1b[H", "\x1b[K", "\x1b[J"


class Screen:
    """Draws frames in place; use `screen()`."""

    def __init__(self, keys: int | None) -> None:
        self._keys = keys

    @property
    def size(self) -> tuple[int, int]:
        columns, lines = shutil.get_terminal_size()
        return max(20, columns), max(10, lines)

    def show(self, lines: Sequence[str]) -> None:
        text = "\r\n".join(line + _CLEAR_LINE for line in lines)
        sys.stdout.write(_HOME + text + _CLEAR_REST)
        sys.stdout.flush()

    def quits(self, seconds: float) -> bool:
        """Waits so long, or until a key comes; whether that was q."""
        ready, _, _ = select.select([self._keys] if self._keys is not None else [], [], [], seconds)
        if not ready or self._keys is None:
            return False
        pressed = os.read(self._keys, 64)
        if not pressed:  # nobody is there any more
            self._keys = None
        return b"q" in pressed.lower()


@contextmanager
def screen() -> Iterator[Screen]:
    """Takes the terminal over and gives it back as it was."""
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    before = termios.tcgetattr(keys) if keys is not None else None
    try:
        if keys is not None:
            tty.setcbreak(keys)
        sys.stdout.write(_ENTER)
        yield Screen(keys)
    finally:
        sys.stdout.write(_LEAVE)
        sys.stdout.flush()
        if keys is not None and before is not None:
            termios.tcsetattr(keys, termios.TCSADRAIN, before)
