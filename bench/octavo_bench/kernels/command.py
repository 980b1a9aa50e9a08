"""``octavo bench kernels``."""

from __future__ import annotations

import argparse
from pathlib import Path


def configure(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--threads", type=int, default=0, help="threads; 0: the CPUs this process may use")
    parser.add_argument("--isa", default="", help="instruction set; empty: the machine's best")
    parser.add_argument("--budget", type=float, default=0.15, metavar="SECONDS", help="time for each figure")
    parser.add_argument(
        "--only",
        default="",
        metavar="TEXT",
        help='only kernels whose name contains this text: "attention", "linear", "linear q4_1", ...; empty: all',
    )
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    parser.add_argument(
        "--compare", type=Path, metavar="FILE", help="exit with 1 on a regression against FILE"
    )
    parser.add_argument(
        "--baseline",
        action="store_true",
        help="compare with the committed figures of this instruction set and number of threads",
    )


def run(flags: argparse.Namespace) -> int:
    from octavo import _engine, ops
    from octavo.errors import InvalidArgumentError
    from octavo_bench.kernels import attention, linear, report

    formats = [f for f in linear.FORMATS if flags.only in f"linear {f}"]
    with_attention = flags.only in "attention" or "attention" in flags.only
    if not formats and not with_attention:
        known = ", ".join(["attention", *(f"linear {f}" for f in linear.FORMATS)])
        raise InvalidArgumentError(
            f"--only {flags.only!r} matches no kernel; there are {known}", param="only"
        )
    context = ops.Context(flags.threads, flags.isa)
    before = report.baseline(context.isa, context.threads) if flags.baseline else flags.compare
    ceilings = _engine.measure_ceilings(context.isa, context.threads, 0.5)
    limits = ", ".join(f"{name} {value:.1f}" for name, value in ceilings.items())
    print(f"{context.threads} threads, {context.isa}; ceilings: " + limits)
    figures = []
    measurements = []
    if formats:
        measurements.append(linear.measure(context, ceilings, flags.budget, formats))
    if with_attention:
        measurements.append(attention.measure(context, ceilings, flags.budget))
    for measurement in measurements:
        for figure in measurement:
            figures.append(figure)
            print(report.line(figure), flush=True)
    if flags.out:
        report.write(figures, ceilings, context.threads, context.isa, flags.out)
    if before:
        worse = report.regressions(figures, before)
        for text in worse:
            print(text)
        print(f"{len(worse)} regressions of more than 10 % against {before}")
        return 1 if worse else 0
    return 0
