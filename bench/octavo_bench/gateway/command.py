"""``octavo bench gateway``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--streams", type=int, default=64, metavar="N", help="streams at once")
    parser.add_argument("--tokens", type=int, default=500, metavar="N", help="chunks of each stream")
    parser.add_argument("--requests", type=int, default=2000, metavar="N", help="requests without streaming")
    parser.add_argument(
        "--connections", type=int, default=32, metavar="N", help="connections that send those"
    )
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="of each; the median counts")
    parser.add_argument(
        "--model", help="serve this model instead of the stub; the event loop's thread alone counts then"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")


def run(flags: argparse.Namespace) -> int:
    from octavo import checks
    from octavo_bench.gateway.measure import running_server
    from octavo_bench.gateway.report import Figures, lines, write

    for name in ("streams", "tokens", "requests", "connections", "rounds"):
        checks.integer(name, getattr(flags, name), 1, 10**7)
    command = [sys.executable, "-m", "octavo_bench.gateway.server"]
    if flags.model:
        serve = ("-m", "octavo", "serve", flags.model, "--port", "0", "--disable-log-requests")
        command = [sys.executable, *serve, "--max-num-seqs", str(max(flags.streams, flags.connections))]
    with running_server(command, loop_only=bool(flags.model)) as server:
        server.streamed(flags.streams, 20)  # what is imported and made once
        server.whole(flags.connections, flags.connections, 1)
        figures = Figures(
            streams=flags.streams,
            connections=flags.connections,
            chunks=[server.streamed(flags.streams, flags.tokens) for _ in range(flags.rounds)],
            requests=[server.whole(flags.connections, flags.requests, 1) for _ in range(flags.rounds)],
        )
    print("\n".join(lines(figures)))
    if flags.out is not None:
        write(figures, flags.out)
    return 0
