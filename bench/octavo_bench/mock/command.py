"""``octavo bench mock``."""

from __future__ import annotations

import argparse
import asyncio
import signal


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--host", default="127.0.0.1", help="address to listen on")
    parser.add_argument("--port", type=int, default=8000, help="port to listen on; 0 takes a free one")
    parser.add_argument("--ttft-ms", type=float, default=100.0, help="time to first token")
    parser.add_argument(
        "--ttft-spread-ms", type=float, default=0.0, help="uniformly distributed extra of the first token"
    )
    parser.add_argument("--itl-ms", type=float, default=10.0, help="time between chunks")
    parser.add_argument("--tokens-per-chunk", type=int, default=1, help="tokens that a chunk carries")
    parser.add_argument(
        "--max-num-seqs", type=int, help="requests answered at once, the others wait; default: no limit"
    )
    parser.add_argument("--seed", type=int, default=0, help="seed of the spread")


def run(flags: argparse.Namespace) -> int:
    from octavo.errors import InvalidArgumentError
    from octavo_bench import precise_loop
    from octavo_bench.mock.pace import Pace

    for name in ("ttft_ms", "ttft_spread_ms", "itl_ms"):
        if not 0 <= getattr(flags, name) < 1e7:
            raise InvalidArgumentError(f"{name} {getattr(flags, name)}: from 0 to 1e7 ms", param=name)
    for name in ("tokens_per_chunk", "max_num_seqs"):
        if getattr(flags, name) is not None and getattr(flags, name) < 1:
            raise InvalidArgumentError(f"{name} {getattr(flags, name)}: at least 1", param=name)
    pace = Pace(
        flags.ttft_ms / 1e3,
        flags.ttft_spread_ms / 1e3,
        flags.itl_ms / 1e3,
        flags.tokens_per_chunk,
        flags.max_num_seqs,
    )
    return precise_loop.run(_serve(pace, flags.host, flags.port, flags.seed))


async def _serve(pace: object, host: str, port: int, seed: int) -> int:
    from aiohttp import web

    from octavo.errors import InvalidArgumentError
    from octavo_bench.mock.pace import Pace
    from octavo_bench.mock.server import MODEL, MockServer

    assert isinstance(pace, Pace)
    runner = web.AppRunner(MockServer(pace, seed).app, access_log=None, shutdown_timeout=1.0)
    await runner.setup()
    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        await web.TCPSite(runner, host, port).start()
        print(f"model {MODEL!r} at http://{host}:{runner.addresses[0][1]}", flush=True)
        await stop.wait()
    except OSError as error:
        raise InvalidArgumentError(f"{host}:{port}: {error.strerror or error}", param="port") from error
    finally:
        await runner.cleanup()
    return 0
