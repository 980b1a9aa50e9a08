"""What is left when the process dies: its build, its configuration, what it was doing, its scheduler's last decisions
and where it fell.

The file is written while all is well, since a process that has crashed can do little, and removed by an orderly end.
Nothing of it comes from prompts or answers: the engine's figures and decisions are numbers and words of its own.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import logging
import os
import platform
import time
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from octavo_gateway.api.engine import DecisionReport, Engine

_log = logging.getLogger("octavo.gateway")

_KEPT = 16  # reports of earlier processes
_STATE_BYTES = 16 * 1024  # room for the latest state, which is written over the one before
_DECISION_BYTES = 128 * 1024  # room for the last decisions, a thousand or so
_SECRETS = ("--api-key", "--admin-key")


class CrashReport:
    """The report of this process in `folder`; without a folder, stacks of a crash go to stderr alone."""

    def __init__(self, folder: str | None, arguments: Sequence[str]) -> None:
        self._path: Path | None = None
        self._fd = self._append = -1
        self._state_at = 0
        self._decisions: DecisionReport | None = None
        faulthandler.enable(2)  # stderr, whatever sys.stderr is
        if folder:
            try:
                self._open(Path(folder).expanduser(), arguments)
            except OSError as e:
                _log.warning("a crash would leave no report: %s", e)

    def _open(self, folder: Path, arguments: Sequence[str]) -> None:
        from octavo import __version__

        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        for old in sorted(folder.glob("octavo-*.txt"), key=_modified)[:-_KEPT]:
            old.unlink(missing_ok=True)
        self._path = folder / f"octavo-{time.strftime('%Y%m%d-%H%M%S')}-{os.getpid()}.txt"
        self._fd = os.open(self._path, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600)
        self._append = os.open(self._path, os.O_WRONLY | os.O_APPEND)
        system = os.uname()
        machine = f"{system.sysname} {system.release} {system.machine}"
        head = (
            f"octavo {__version__}, Python {platform.python_version()}, {machine}, pid {os.getpid()}\n"
            f"started {_now()}: {' '.join(without_secrets(arguments))}\n"
        )
        self._state_at = os.write(self._fd, head.encode())
        self.note({"phase": "starting"})
        os.pwrite(self._fd, b" " * (_DECISION_BYTES - 1) + b"\n", self._state_at + _STATE_BYTES)
        faulthandler.enable(self._append)

    def engine(self, engine: Engine) -> None:
        """What is loaded. From now on its decisions are kept, up to the one before a fatal signal."""
        if self._fd < 0:
            return
        for name, what in (("engine", engine.model.engine_info), ("scheduler", engine.scheduler_config())):
            self._write_end(f"{name} {json.dumps(what, default=str)}\n")
        self._decisions = engine.report_decisions(self._fd, self._state_at + _STATE_BYTES, _DECISION_BYTES)

    def note(self, state: Mapping[str, Any]) -> None:
        """What goes on now; replaces what was noted before."""
        if self._fd < 0:
            return
        text = f"at {_now()}: {json.dumps(state, default=str)}".encode()[: _STATE_BYTES - 1]
        with contextlib.suppress(OSError):  # a full disk is not the requests' trouble
            os.pwrite(self._fd, text.ljust(_STATE_BYTES - 1) + b"\n", self._state_at)
        self._write_decisions()

    def fault(self, fault: BaseException) -> None:
        """An exception that ends the server: its type and place, since its message may quote a request."""
        self._write_decisions()
        places = "".join(traceback.format_tb(fault.__traceback__))
        self._write_end(f"ended by {type(fault).__qualname__}\n{places}")
        self._close()
        self._shorten()

    def remove(self) -> None:
        """The process ends as it should."""
        self._close()
        if self._path is not None:
            self._path.unlink(missing_ok=True)

    def _write_end(self, text: str) -> None:
        if self._append >= 0:
            with contextlib.suppress(OSError):
                os.write(self._append, text.encode())

    def _shorten(self) -> None:
        """Gives back the room that was kept for states and decisions to come."""
        if self._path is not None:
            with contextlib.suppress(OSError):
                lines = (line.rstrip() for line in self._path.read_bytes().splitlines())
                self._path.write_bytes(b"".join(line + b"\n" for line in lines if line))

    def _write_decisions(self) -> None:
        if self._decisions is not None:
            self._decisions.write()

    def _close(self) -> None:
        self._decisions = None  # before its file is closed
        faulthandler.enable(2)
        for fd in (self._fd, self._append):
            if fd >= 0:
                os.close(fd)
        self._fd = self._append = -1


def without_secrets(arguments: Sequence[str]) -> list[str]:
    """The command line with keys left out, in whichever form they are given."""
    shown: list[str] = []
    hide = False
    for argument in arguments:
        flag, equals, _ = argument.partition("=")
        secret = len(flag) > len("--a") and any(name.startswith(flag) for name in _SECRETS)
        shown.append("***" if hide else f"{flag}=***" if secret and equals else argument)
        hide = not hide and secret and not equals
    return shown


def _modified(path: Path) -> float:
    try:
        return path.stat().st_mtime
    except OSError:
        return 0.0


def _now() -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%S%z")
