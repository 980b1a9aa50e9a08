"""``octavo bench soak``."""

from __future__ import annotations

import argparse
import json
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING, Any

from octavo.models.hub import DEFAULT_MODEL

if TYPE_CHECKING:
    from octavo_bench.soak.run import Soak


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the model, as octavo serve takes it")
    parser.add_argument("--seconds", type=float, default=1800.0, metavar="S", help="length of the load")
    parser.add_argument(
        "--trial-seconds", type=float, default=20.0, metavar="S", help="of each rate that is tried before"
    )
    parser.add_argument("--questions", type=int, default=96, metavar="N", help="different requests")
    parser.add_argument("--tenants", type=int, default=8, metavar="N", help="API keys that share the load")
    parser.add_argument("--max-num-seqs", type=int, default=32, metavar="N", help="sequences in a step")
    parser.add_argument(
        "--kv-cache-memory",
        default="24MiB",
        metavar="SIZE",
        help="of the cache: too small for so many sequences",
    )
    parser.add_argument("--threads", type=int, default=0, help="threads of the server; 0 is one per core")
    parser.add_argument("--seed", type=int, default=0, help="of the requests and their order")
    parser.add_argument(
        "--folder", type=Path, metavar="FOLDER", help="for the server's log; default: a temporary one"
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")


def run(flags: argparse.Namespace) -> int:
    """0: nothing lost, duplicated or wrong, and nothing grew. 1: see what is printed."""
    from octavo.errors import InvalidArgumentError
    from octavo_bench import precise_loop
    from octavo_bench.peers.report import machine
    from octavo_bench.soak.run import Settings, soak

    for name, least in (("seconds", 10), ("trial_seconds", 2), ("questions", 12), ("tenants", 1)):
        if getattr(flags, name) < least:
            raise InvalidArgumentError(f"{name} {getattr(flags, name)}: at least {least}", param=name)
    with tempfile.TemporaryDirectory(prefix="octavo-soak-") as temporary:
        settings = Settings(
            model=flags.model,
            seconds=flags.seconds,
            folder=flags.folder or Path(temporary),
            questions=flags.questions,
            tenants=flags.tenants,
            seats=flags.max_num_seqs,
            pool=flags.kv_cache_memory,
            threads=flags.threads,
            seed=flags.seed,
            trial_seconds=flags.trial_seconds,
        )
        found = precise_loop.run(soak(settings, lambda line: print(line, flush=True)))
    print(report(found))
    if flags.out:
        flags.out.write_text(json.dumps({"machine": machine(), **as_dict(found)}, indent=1) + "\n")
    return 1 if found.problems else 0


def report(found: Soak) -> str:
    """The figures in lines."""
    from octavo_bench.soak.run import SLICES

    counts, seconds = found.tally.counts, found.seconds or 1.0
    sent = found.requests or 1
    lines = [
        f"{sent} requests; in {found.seconds:.0f} s {min(found.rates):.2f} to {max(found.rates):.2f}/s, sustained "
        f"before: {found.rate:.2f}/s, with as many as could be: {found.capacity:.2f}/s; held back: {found.held:.0f} s",
        f"{counts['answered']} answered bit by bit as on the quiet machine, {counts['hung up']} hung up "
        f"({100 * counts['hung up'] / sent:.1f} %), {counts['absurd']} absurd refused as they should be "
        f"({100 * counts['absurd'] / sent:.1f} %)",
        f"{counts['lost']} lost, {counts['duplicated']} duplicated, {counts['wrong']} wrong",
        f"{found.audits} of {found.looks} audits clean; {found.preemptions:.0f} preemptions, some in "
        f"{found.preempting} of {SLICES} parts of the run",
    ]
    if found.memory is not None:
        grown, per_minute = found.memory, 60 / 1024
        lines.append(
            f"anonymous memory and swap {found.memory_bytes / 2**20:.1f} MiB, slope "
            f"{grown.slope * per_minute:+.1f} KiB/min (95 %: {grown.low * per_minute:+.1f} to "
            f"{grown.high * per_minute:+.1f}) over the last {grown.seconds:.0f} s"
        )
    lines += [
        f"processor: server {found.server_cpu / seconds:.2f} cores, driver {found.driver_cpu / seconds:.2f}",
        f"SIGTERM: status {found.ended_with} after {found.stop_seconds:.1f} s",
    ]
    return "\n".join([*lines, *(f"FAILED: {problem}" for problem in found.problems)])


def as_dict(found: Soak) -> dict[str, Any]:
    from dataclasses import asdict

    memory = asdict(found.memory) if found.memory else None
    return {**{k: v for k, v in asdict(found).items() if k != "tally"}, "memory": memory} | {
        "counts": dict(found.tally.counts)
    }
