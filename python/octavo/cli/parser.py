"""The parser of a command: what is wrong is one line, in the words of the command line."""

from __future__ import annotations

import argparse
import difflib
import re
from collections.abc import Iterator, Sequence
from typing import Any, NoReturn

# Keywords whose flag says the opposite.
_OPPOSITES = {
    "enable_prefix_caching": "--no-prefix-caching",
    "enable_chunked_prefill": "--no-chunked-prefill",
}


class UsageError(Exception):
    """The arguments of a command are wrong."""


class _Defaults(argparse.ArgumentDefaultsHelpFormatter):
    """Adds a default to the help where there is one."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default in (None, "", "{}", []) or action.nargs == 0:
            return action.help
        return super()._get_help_string(action)


class Parser(argparse.ArgumentParser):
    """An ``ArgumentParser`` that raises ``UsageError`` and suggests the flag that was probably meant."""

    def __init__(self, **kwargs: Any) -> None:
        super().__init__(
            **{
                "formatter_class": _Defaults,
                **kwargs,
                "allow_abbrev": False,
            }
        )

    def error(self, message: str) -> NoReturn:
        raise UsageError(f"{self.prog}: error: {message}; see {self.prog} --help")

    def parse_args(self, args: Any = None, namespace: Any = None) -> Any:
        flags, extra = self.parse_known_args(args, namespace)
        if extra:
            self.error(
                _unknown(extra, [option for action in actions(self) for option in action.option_strings])
            )
        return flags


def actions(parser: argparse.ArgumentParser) -> Iterator[argparse.Action]:
    """Every argument of a parser and of those below it."""
    for action in parser._actions:
        yield action
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from actions(below)


def in_flags(message: str, parser: argparse.ArgumentParser) -> str:
    """An error of the Python API with its keywords written as the flags of this command."""
    flags = dict(_OPPOSITES)
    for action in actions(parser):
        flag = "--" + action.dest.replace("_", "-")
        if flag in action.option_strings:
            flags[action.dest] = flag
    known = {option for action in actions(parser) for option in action.option_strings}

    def spell(found: re.Match[str]) -> str:
        word = found[0]
        # A word that is also one of the language stands for a keyword only where a message begins with it.
        if word not in flags or flags[word] not in known or ("_" not in word and found.start() > 0):
            return word
        return flags[word]

    return re.sub(r"(?<![\w/.'\"-])[a-z]\w*(?![\w/.-])", spell, message)


def suggestion(word: str, known: Sequence[str]) -> str:
    """``" (did you mean X?)"``, or nothing."""
    names = {name.lstrip("-"): name for name in known}  # equal dashes make nothing alike
    close = difflib.get_close_matches(word.lstrip("-"), names, 1, 0.6)
    return f" (did you mean {names[close[0]]}?)" if close else ""


def _unknown(extra: Sequence[str], known: Sequence[str]) -> str:
    flag = next((word for word in extra if word.startswith("-")), None)
    if flag is None:
        return f"unexpected argument {extra[0]!r}"
    name = flag.partition("=")[0]
    others = [option for option in known if option != name]  # it may be a flag of another command
    return f"there is no flag {name}{suggestion(name, others)}"
