"""What a subcommand is."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Command:
    """A subcommand of ``octavo``, offered under an entry point of the group ``octavo.commands``.

    Attributes:
        help: one line for the overview.
        configure: adds the command's arguments to a parser of its own; keep what it imports light.
        run: does the work and returns the exit code. It may raise ``OctavoError``: one line on stderr, exit code 2.
    """

    help: str
    configure: Callable[[argparse.ArgumentParser], None]
    run: Callable[[argparse.Namespace], int]
