"""Dispatch to a subcommand, and what its errors look like."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from octavo.cli import standard_streams
from octavo.errors import OctavoError

USAGE_ERROR = 2
INTERRUPTED = 130


def main(argv: Sequence[str] | None = None) -> int:
    """Run ``octavo`` with ``argv`` (the process's own by default) and return the exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    standard_streams.replace_what_cannot_be_shown()
    try:
        code = _dispatch(arguments)
        standard_streams.flush_output()
        return code
    except OctavoError as error:
        print(f"octavo: error: {error}", file=sys.stderr)
        return USAGE_ERROR
    except KeyboardInterrupt:
        print("octavo: interrupted", file=sys.stderr)
        return INTERRUPTED
    except BrokenPipeError:  # the reader of our output (head, less) has gone: not an error
        standard_streams.drop_output()
        return 0
    except OSError:
        if (why := standard_streams.output_failure()) is None:
            raise
        standard_streams.drop_output()
        print(f"octavo: error: standard output cannot be written: {why}", file=sys.stderr)
        return USAGE_ERROR
    except SystemExit as leaving:  # argparse
        return leaving.code if isinstance(leaving.code, int) else USAGE_ERROR


def _dispatch(arguments: list[str]) -> int:
    # Here, where an interrupt is told in one line: they take a while to import.
    from octavo.cli import discovery
    from octavo.cli.parser import Parser, UsageError, in_flags, suggestion

    commands = discovery.command_names()
    if arguments[:1] == ["--version"]:
        from octavo import __version__

        print(f"octavo {__version__}")
        return 0
    if not arguments or arguments[0] in ("-h", "--help"):
        _print_overview(commands)
        return 0 if arguments else USAGE_ERROR
    name = arguments[0]
    if name not in commands:
        meant = suggestion(name, list(commands)) or f"; there are {', '.join(sorted(commands))}"
        print(f"octavo: error: no command {name!r}{meant}", file=sys.stderr)
        return USAGE_ERROR
    command = discovery.load(name, commands[name])
    parser = Parser(prog=f"octavo {name}", description=command.help)
    command.configure(parser)
    try:
        return command.run(parser.parse_args(arguments[1:]))
    except UsageError as error:
        print(error, file=sys.stderr)
    except OctavoError as error:
        print(f"octavo: error: {in_flags(str(error), parser)}", file=sys.stderr)
    return USAGE_ERROR


def _print_overview(commands: dict[str, str]) -> None:
    from octavo.cli import discovery

    print("usage: octavo COMMAND [ARGUMENTS]\n\nServe and use large language models.\n\ncommands:")
    for name in sorted(commands):
        try:
            summary = discovery.load(name, commands[name]).help
        except OctavoError as error:
            summary = f"({error})"
        print(f"  {name:<10} {summary}")
    print("\noctavo COMMAND --help describes one command; octavo --version prints the version.")
