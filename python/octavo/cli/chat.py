"""``octavo chat``: talk to a model in the terminal."""

from __future__ import annotations

import argparse
import contextlib
import sys
from typing import Any

from octavo.cli.command import Command
from octavo.cli.model_flags import add_model_flags, engine_args
from octavo.cli.sampling_flags import add_sampling_flags, sampling_params
from octavo.cli.standard_streams import reading_input
from octavo.errors import OctavoError

_HELP = (
    "/clear starts over, /exit or Ctrl-D leaves, Ctrl-C stops an answer; a line that ends in a backslash goes on in "
    "the next."
)


def configure(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    parser.add_argument("--system", help="a system message that opens the conversation")
    add_sampling_flags(parser)


def run(flags: argparse.Namespace) -> int:
    from octavo.cli.session import Session

    params = sampling_params(flags)
    opening = [{"role": "system", "content": flags.system}] if flags.system is not None else []
    with Session(engine_args(flags)) as session:
        template = session.model.chat_template
        _note(f"{session.model.name}, loaded in {session.model.load_seconds:.1f} s. {_HELP}")
        messages: list[dict[str, Any]] = list(opening)
        while (line := _read()) is not None:
            if line in ("/exit", "/quit"):
                break
            if line == "/clear":
                messages = list(opening)
                continue
            if line.startswith("/"):
                _note(_HELP)
                continue
            if not line.strip():
                continue
            messages.append({"role": "user", "content": line})
            answer: list[str] = []
            try:
                with contextlib.closing(session.stream(template.encode(messages), params)) as pieces:
                    for piece in pieces:
                        answer.append(piece)
                        print(piece, end="", flush=True)
            except KeyboardInterrupt:
                _note("stopped", before="\n")
            except (
                OctavoError
            ) as error:  # too long for the window, say: the conversation can go on without it
                messages.pop()
                _note(f"error: {error}")
                continue
            print()
            messages.append({"role": "assistant", "content": "".join(answer)})
    return 0


def _read() -> str | None:
    """A line of input, continued by backslashes; None at its end."""
    if sys.stdin is not None and sys.stdin.isatty():
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 - importing it gives input() its editing and history
    lines: list[str] = []
    while True:
        try:
            with reading_input():
                line = input(("... " if lines else ">>> ") if sys.stdin.isatty() else "")
        except EOFError:
            return "\n".join(lines) if lines else None
        except KeyboardInterrupt:
            print(file=sys.stderr)
            return None
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _note(text: str, before: str = "") -> None:
    print(f"{before}({text})", file=sys.stderr)


command = Command("Talk to a model in the terminal.", configure, run)
