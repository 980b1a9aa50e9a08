"""``octavo bench fairness``."""

from __future__ import annotations

import argparse
import asyncio
import json
import random
import signal
import tempfile
from pathlib import Path
from typing import Any

from octavo.models.hub import DEFAULT_MODEL

# Half of the machine is half of its speed: everything takes twice as long. Half of its processors may be as fast as all
# of them, where they are threads of one core or a host gives them no more.
_HALF = 2.0


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default=DEFAULT_MODEL, help="the model, as octavo serve takes it")
    parser.add_argument(
        "--seconds", type=float, default=40.0, metavar="S", help="in which tokens are counted"
    )
    parser.add_argument("--warm-seconds", type=float, default=10.0, metavar="S", help="before that")
    parser.add_argument(
        "--flood", type=int, default=1000, metavar="N", help="requests that the flooding tenant queues"
    )
    parser.add_argument(
        "--requests", type=int, default=240, metavar="N", help="of the light tenant, in each setting"
    )
    parser.add_argument("--rounds", type=int, default=6, metavar="N", help="the settings take turns so often")
    parser.add_argument("--light-prompt", type=int, default=200, metavar="N", help="tokens of its prompts")
    parser.add_argument("--max-num-seqs", type=int, default=32, metavar="N", help="sequences in a step")
    parser.add_argument(
        "--max-num-batched-tokens", type=int, default=512, metavar="N", help="tokens in a step"
    )
    parser.add_argument("--seed", type=int, default=0, help="of prompts and pauses")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")


def run(flags: argparse.Namespace) -> int:
    """0: Jain's index is 0.95 or more, and the light tenant's p99 at most twice that on half of the machine. 1: not."""
    from octavo.errors import InvalidArgumentError
    from octavo_bench import precise_loop
    from octavo_bench.peers.report import machine

    # With fewer requests the 99th percentile is the slowest of them.
    for name, least in (("requests", 200), ("rounds", 1), ("flood", 1), ("light_prompt", 1)):
        if getattr(flags, name) < least:
            raise InvalidArgumentError(f"{name} {getattr(flags, name)}: at least {least}", param=name)
    with tempfile.TemporaryDirectory(prefix="octavo-fairness-") as folder:
        found = precise_loop.run(_measure(flags, Path(folder)))
    _print(found)
    if flags.out:
        flags.out.write_text(json.dumps({"machine": machine(), **found}, indent=1) + "\n")
    return 0 if found["jain"] >= 0.95 and found["ratio"] <= 2.0 else 1


async def _measure(flags: argparse.Namespace, folder: Path) -> dict[str, Any]:
    from octavo_bench.client.watch import SelfWatch
    from octavo_bench.fairness.equal import jain, tokens_served
    from octavo_bench.fairness.flood import Flood, LightLoad, first_tokens
    from octavo_bench.fairness.requests import Size
    from octavo_bench.own_server import served

    sizes = [Size(16, 4), Size(100, 20), Size(400, 100), Size(600, 10), Size(8, 120)]
    arguments = [
        *("--max-num-seqs", str(flags.max_num_seqs), "--max-model-len", "1024"),
        *("--max-num-batched-tokens", str(flags.max_num_batched_tokens), "--kv-cache-memory", "768MiB"),
        *("--max-queue", "100000", "--served-model-name", "fairness", "--crash-dir", "", "--stall-timeout", "300"),
    ]  # fmt: skip
    draw = random.Random(flags.seed)
    light = LightLoad(Size(flags.light_prompt, 8), 0.2)
    count = -(-flags.requests // flags.rounds)
    beside: list[float] = []
    alone: list[float] = []
    async with served(flags.model, arguments, folder, tenants=len(sizes), tag="shared") as shared:
        shares = await tokens_served(shared, sizes, flags.warm_seconds, flags.seconds, flags.seed)
        print(f"tokens per tenant: {shares}, Jain's index {jain(shares):.4f}", flush=True)
        async with served(flags.model, arguments, folder, tenants=2, tag="quiet") as quiet:
            await first_tokens(quiet, light, 3, draw)
            flood = Flood(shared, flags.flood, Size(120, 40), flags.seed)
            async with flood, SelfWatch() as watch:
                for _ in range(flags.rounds):
                    beside += await first_tokens(shared, light, count, draw)
                    flood.check()
                    # The flood stands still while the other server is measured.
                    shared.process.send_signal(signal.SIGSTOP)
                    try:
                        await asyncio.sleep(0.2)
                        alone += await first_tokens(quiet, light, count, draw)
                    finally:
                        shared.process.send_signal(signal.SIGCONT)
                    await asyncio.sleep(1.0)
                answered, late = flood.answered, watch.report(0).lag_max
    return {
        "sizes": [[size.prompt, size.output] for size in sizes],
        "tokens": shares,
        "jain": jain(shares),
        "flood": flags.flood,
        "flood_answered": answered,
        "light_beside": _percentiles(beside),
        "light_alone": _percentiles(alone),
        "ratio": _percentile(beside, 99) / (_HALF * _percentile(alone, 99)),
        "client_late_ms": 1000 * late,
    }


def _percentile(values: list[float], percent: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(len(ordered) * percent / 100))]


def _percentiles(values: list[float]) -> dict[str, float]:
    return {"count": len(values), **{f"p{p}_ms": 1000 * _percentile(values, p) for p in (50, 90, 99)}}


def _print(found: dict[str, Any]) -> None:
    print(f"Jain's index over {len(found['tokens'])} tenants: {found['jain']:.4f} (at least 0.95)")
    for name, key in ((f"beside {found['flood']} queued", "light_beside"), ("alone", "light_alone")):
        p = found[key]
        percentiles = ", ".join(f"p{q} {p[f'p{q}_ms']:.0f} ms" for q in (50, 90, 99))
        print(f"time to first token {name}: {percentiles} of {p['count']} requests")
    half = _HALF * found["light_alone"]["p99_ms"]
    print(f"half of the machine is half of its speed: p99 {half:.0f} ms")
    print(
        f"p99 ratio: {found['ratio']:.2f} (at most 2); the client woke {found['client_late_ms']:.0f} ms late at most"
    )
