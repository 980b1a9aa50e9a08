"""Which subcommands there are: the entry points of the installed packages or, in a source tree, of its project file."""

from __future__ import annotations

import importlib
import re
from importlib import metadata
from pathlib import Path

from octavo.cli.command import Command
from octavo.errors import OctavoError

_GROUP = "octavo.commands"


def command_names() -> dict[str, str]:
    """Each command's name and where it lives, as ``"module:attribute"``."""
    installed = {entry.name: entry.value for entry in metadata.entry_points(group=_GROUP)}
    return installed or _of_source_tree(Path(__file__).parents[3] / "pyproject.toml")


def load(name: str, where: str) -> Command:
    """The command at ``"module:attribute"``."""
    module, _, attribute = where.partition(":")
    try:
        command = getattr(importlib.import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise OctavoError(
            f"the command {name!r} cannot be loaded: {error}", code="unsupported", param=name
        ) from error
    if not isinstance(command, Command):
        raise OctavoError(f"the command {name!r} ({where}) is not a Command", code="internal", param=name)
    return command


def _of_source_tree(project_file: Path) -> dict[str, str]:
    """The table of entry points in pyproject.toml; simple lines only, since Python 3.10 has no TOML parser."""
    if not project_file.is_file():
        return {}
    _, _, table = project_file.read_text("utf-8").partition(f'[project.entry-points."{_GROUP}"]\n')
    return dict(re.findall(r'^([\w-]+) = "([\w.]+:\w+)"$', table.partition("\n[")[0], re.M))
