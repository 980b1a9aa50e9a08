"""``octavo generate``: continue a prompt on the command line."""

from __future__ import annotations

import argparse
import contextlib
import sys

from octavo.cli.command import Command
from octavo.cli.model_flags import add_model_flags, engine_args
from octavo.cli.sampling_flags import add_sampling_flags, sampling_params
from octavo.cli.standard_streams import reading_input
from octavo.cli.text_file import read_text
from octavo.errors import InvalidArgumentError


def configure(parser: argparse.ArgumentParser) -> None:
    add_model_flags(parser)
    source = parser.add_mutually_exclusive_group()
    source.add_argument(
        "--prompt", "-p", help="the prompt; standard input without it, less the newline at its end"
    )
    source.add_argument(
        "--prompt-file", "-f", help="a file with the prompt; the newline at its end is no part of it"
    )
    parser.add_argument(
        "--chat", action="store_true", help="send the prompt as a user's message, not as text to continue"
    )
    parser.add_argument("--system", help="a system message; implies --chat")
    parser.add_argument("--no-stream", action="store_true", help="print the text when it is complete")
    add_sampling_flags(parser)


def run(flags: argparse.Namespace) -> int:
    from octavo.cli.session import Session

    params = sampling_params(flags)
    args = engine_args(flags)
    text = _prompt(flags)
    with Session(args) as session:
        if flags.chat or flags.system is not None:
            system = [{"role": "system", "content": flags.system}] if flags.system is not None else []
            prompt = session.model.chat_template.encode([*system, {"role": "user", "content": text}])
        else:
            prompt = session.encode(text)
        with contextlib.closing(session.stream(prompt, params)) as pieces:
            if flags.no_stream:
                print("".join(pieces))
                return 0
            for piece in pieces:
                print(piece, end="", flush=True)
        print()
    return 0


def _prompt(flags: argparse.Namespace) -> str:
    if flags.prompt is not None:
        text: str = flags.prompt
    elif flags.prompt_file is not None:
        text = read_text("--prompt-file", flags.prompt_file)
    else:
        with reading_input():
            text = sys.stdin.read()
    if flags.prompt is None:  # the end of the last line, which editors and echo add
        text = text.removesuffix("\n").removesuffix("\r")
    if not text:
        raise InvalidArgumentError(
            "the prompt is empty; give --prompt, --prompt-file or text on standard input"
        )
    return text


command = Command("Continue a prompt, or answer one message.", configure, run)
