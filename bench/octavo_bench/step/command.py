"""``octavo bench step``."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--model", default="smollm2", help="a model, as for octavo serve")
    parser.add_argument("--threads", type=int, default=0, help="threads; 0: the CPUs this process may use")
    parser.add_argument("--isa", default="", help="instruction set; empty: the machine's best")
    parser.add_argument("--short", action="store_true", help="W2 of 8 x (64 + 32), W4 of 2 x 1,024")
    parser.add_argument(
        "--host",
        action="store_true",
        help="the host's share of a GPU's steps alone: decoding with 1, 32 and 256 sequences on the emulated GPU with "
        "its kernels left out",
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")


def run(flags: argparse.Namespace) -> int:
    from octavo_bench.step import report

    if flags.host:
        from octavo_bench.step import host

        parts = []
        for part in host.measure():
            parts.append(part)
            print(report.table(part), flush=True)
        if flags.out:
            report.write(parts, {"isa": "", "threads": 1}, "random", flags.out)
        return 0
    return _run_model(flags)


def _run_model(flags: argparse.Namespace) -> int:
    from octavo.engine_args import EngineArgs
    from octavo.loading import load
    from octavo_bench.step import report
    from octavo_bench.step.measure import measure
    from octavo_bench.workloads import SHORT, Shape

    shape = SHORT if flags.short else Shape()
    model = load(
        EngineArgs(model=flags.model, threads=flags.threads, isa=flags.isa, skip_tokenizer_init=True),
        trace=True,
    )
    info = model.engine.info()
    print(f"{flags.model}, {info['threads']} threads, {info['isa']}")
    parts = []
    try:
        for part in measure(model, shape, model.vocab_size):
            parts.append(part)
            print(report.table(part), flush=True)
        if flags.out:
            report.write(parts, info, flags.model, flags.out)
    finally:
        model.shutdown()
    return 0
