"""``octavo bench``: the subcommand and what stands under it."""

from __future__ import annotations

import argparse

from octavo.cli.command import Command
from octavo_bench.fairness import command as fairness
from octavo_bench.gateway import command as gateway
from octavo_bench.kernels import command as kernels
from octavo_bench.memory import command as memory
from octavo_bench.mock import command as mock
from octavo_bench.models import command as models
from octavo_bench.peers import command as peers
from octavo_bench.serve import command as serve
from octavo_bench.soak import command as soak
from octavo_bench.step import command as step
from octavo_bench.structured import command as structured


def _configure(parser: argparse.ArgumentParser) -> None:
    benches = parser.add_subparsers(dest="bench", required=True, metavar="BENCH")
    for name, module, text in (
        ("kernels", kernels, "each kernel as a share of the machine's ceilings, measured in the same run"),
        (
            "memory",
            memory,
            "how much of a cache holds tokens, and how many sequences run: pages beside ranges",
        ),
        ("serve", serve, "load tests of any OpenAI-compatible server"),
        ("soak", soak, "long load with hang-ups and absurd requests; every answer compared bit by bit"),
        ("fairness", fairness, "what tenants get of a server that they share"),
        ("mock", mock, "a server without a model that answers at a set pace, to calibrate a load client"),
        ("gateway", gateway, "what the HTTP gateway costs per chunk and per request, with a stub engine"),
        ("structured", structured, "what structured output costs per token and in a full batch"),
        ("step", step, "where the time of one engine step goes, phase by phase"),
        ("model", models, "write a model to measure with: random weights, or a GGUF file in another format"),
        ("peers", peers, "Octavo and other servers on the same workloads, in turn"),
    ):
        sub = benches.add_parser(name, help=text, description=text[0].upper() + text[1:])
        module.configure(sub)
        sub.set_defaults(run_bench=module.run)


def _run(flags: argparse.Namespace) -> int:
    return int(flags.run_bench(flags))


bench = Command("Measure kernels, servers under load, and Octavo beside its peers.", _configure, _run)
