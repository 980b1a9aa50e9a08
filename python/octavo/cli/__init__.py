"""The command line: ``octavo COMMAND``. Each installed package adds its own commands."""

from octavo.cli.main import main

__all__ = ["main"]
