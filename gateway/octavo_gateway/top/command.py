"""`octavo top`."""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
from typing import TYPE_CHECKING

from octavo.cli.command import Command

if TYPE_CHECKING:
    from octavo_gateway.protocol.cache import CacheSnapshot
    from octavo_gateway.top.client import SnapshotClient

_ONCE_WIDTH, _ONCE_HEIGHT = 100, 40


def _configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--url", default="http://127.0.0.1:8000", help="the server")
    parser.add_argument(
        "--api-key", metavar="KEY", help="a key that sees /debug/cache; default $OCTAVO_API_KEY"
    )
    parser.add_argument("--interval", type=float, default=1.0, metavar="SECONDS", help="between two looks")
    parser.add_argument("--once", action="store_true", help="print one picture and exit")


def _run(flags: argparse.Namespace) -> int:
    from octavo import checks
    from octavo_gateway.top.client import SnapshotClient
    from octavo_gateway.top.frame import frame

    checks.number("interval", flags.interval, 0.05, 3600)
    client = SnapshotClient(flags.url, flags.api_key or os.environ.get("OCTAVO_API_KEY"), timeout=10.0)
    first = client.fetch()  # what is wrong from the start ends the command
    if flags.once or not sys.stdout.isatty():
        print("\n".join(frame(first, None, client.base, _ONCE_WIDTH, _ONCE_HEIGHT)))
        return 0
    with contextlib.suppress(KeyboardInterrupt):
        _watch(client, first, flags.interval)
    return 0


def _watch(client: SnapshotClient, now: CacheSnapshot, interval: float) -> None:
    """Until q. A server that does not answer for a while is waited for."""
    from octavo_gateway.top.client import TopError
    from octavo_gateway.top.frame import frame
    from octavo_gateway.top.screen import screen

    before: CacheSnapshot | None = None
    trouble = ""
    with screen() as terminal:
        while True:
            width, height = terminal.size
            foot = trouble or "q quits"
            terminal.show([*frame(now, before, client.base, width, height - 1), foot[:width]])
            if terminal.quits(interval):
                return
            try:
                latest = client.fetch()
            except TopError as e:
                trouble = str(e)
            else:
                before, now, trouble = now, latest, ""


command = Command("Watch the cache and the queue of a running server.", _configure, _run)
