"""``octavo bench memory``."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from octavo_bench.memory.jobs import Job
    from octavo_bench.memory.policies import Limits
    from octavo_bench.memory.served import Served
    from octavo_bench.traces import TraceRequest


def configure(parser: argparse.ArgumentParser) -> None:
    from octavo_bench.memory.cost import A100_13B, BUDGET_13B, KV_BYTES_13B
    from octavo_bench.traces import FORMATS

    trace = parser.add_argument_group("trace")
    trace.add_argument("--trace", type=Path, metavar="FILE", help="lengths from a file instead of drawn ones")
    trace.add_argument("--trace-format", choices=FORMATS, default="auto", help="the shape of that file")
    trace.add_argument("--requests", type=int, default=500, metavar="N", help="how many (at most, of a file)")
    trace.add_argument("--seed", type=int, default=0, help="of the drawn lengths and tokens")
    trace.add_argument(
        "--request-rate",
        type=float,
        metavar="R",
        help="per second; unset: all arrive at once, or as in the file",
    )
    trace.add_argument(
        "--shared-prefix", type=int, default=64, metavar="N", help="leading tokens that are a system prompt's"
    )
    trace.add_argument("--prefix-groups", type=int, default=4, metavar="N", help="different system prompts")
    cache = parser.add_argument_group("cache and steps")
    cache.add_argument(
        "--cache-bytes", type=int, default=BUDGET_13B, metavar="N", help="the budget of each policy"
    )
    cache.add_argument(
        "--bytes-per-token", type=int, default=KV_BYTES_13B, metavar="N", help="K and V of one token"
    )
    cache.add_argument("--max-model-len", type=int, default=2048, metavar="N", help="the window")
    cache.add_argument("--block-size", type=int, default=16, metavar="N", help="tokens per block")
    cache.add_argument("--max-num-seqs", type=int, default=256, metavar="N", help="most sequences at once")
    cache.add_argument(
        "--max-num-batched-tokens", type=int, default=512, metavar="N", help="most tokens per step"
    )
    cost = parser.add_argument_group("step cost")
    cost.add_argument(
        "--weights-ms",
        type=float,
        default=round(1e3 * A100_13B.weights, 3),
        metavar="X",
        help="least milliseconds of a step: reading the weights",
    )
    cost.add_argument(
        "--token-us",
        type=float,
        default=round(1e6 * A100_13B.token, 3),
        metavar="X",
        help="microseconds per token computed",
    )
    cost.add_argument(
        "--position-us",
        type=float,
        default=round(1e6 * A100_13B.position, 3),
        metavar="X",
        help="microseconds per cached position read",
    )
    served = parser.add_argument_group("served")
    served.add_argument(
        "--serve", metavar="MODEL", help="also serve a short version of the trace with this model"
    )
    served.add_argument(
        "--serve-requests", type=int, default=48, metavar="N", help="how many of its requests"
    )
    served.add_argument(
        "--serve-scale", type=int, default=4, metavar="N", help="lengths, window and cache divided by this"
    )
    out = parser.add_argument_group("output")
    out.add_argument("--out", type=Path, metavar="FILE", help="write the figures as JSON")
    out.add_argument(
        "--plots", type=Path, metavar="FOLDER", help="write plots as PNG; needs the package matplotlib"
    )


def run(flags: argparse.Namespace) -> int:
    from octavo_bench.memory import report, sharing
    from octavo_bench.memory.cost import StepCost
    from octavo_bench.memory.jobs import make_jobs
    from octavo_bench.memory.policies import all_policies
    from octavo_bench.memory.simulate import simulate
    from octavo_bench.plotting import need_matplotlib

    if flags.plots is not None:
        need_matplotlib("--plots")
    limits = _limits(flags)
    cost = StepCost(1e-3 * flags.weights_ms, 1e-6 * flags.token_us, 1e-6 * flags.position_us)
    requests, source = _requests(flags)
    jobs = make_jobs(
        requests,
        seed=flags.seed,
        max_model_len=limits.max_model_len,
        shared_prefix=flags.shared_prefix,
        prefix_groups=flags.prefix_groups,
    )
    # For several answers the prompts share nothing: what is saved is saved within a request.
    own = make_jobs(
        requests[:16], seed=flags.seed, max_model_len=limits.max_model_len, shared_prefix=0, prefix_groups=0
    )
    size = limits.block_size
    study = report.Study(
        jobs=jobs,
        source=source,
        limits=limits,
        cost=cost,
        bytes_per_token=flags.bytes_per_token,
        runs=[simulate(jobs, policy, limits, cost) for policy in all_policies(limits)],
        shared=[
            sharing.one_prompt(size),
            sharing.several_answers(own, 8, size, beam=False),
            sharing.several_answers(own, 4, size, beam=True),
        ],
        served=_served(flags, jobs, limits),
    )
    print(report.text(study))
    if flags.out is not None:
        report.write(study, flags.out)
    if flags.plots is not None:
        from octavo_bench.memory.plots import write_plots

        for path in write_plots(study, flags.plots):
            print(f"wrote {path}")
    return 0


def _limits(flags: argparse.Namespace) -> Limits:
    from octavo import checks
    from octavo_bench.memory.policies import Limits

    for name in ("requests", "bytes_per_token", "block_size", "max_num_seqs", "max_num_batched_tokens"):
        checks.integer(name, getattr(flags, name), 1, 2**31)
    for name in ("prefix_groups", "serve_requests", "serve_scale"):
        checks.integer(name, getattr(flags, name), 1, 2**31)
    checks.integer("shared_prefix", flags.shared_prefix, 0, 2**31)
    checks.integer("max_model_len", flags.max_model_len, 2, 2**24)
    slots = flags.cache_bytes // flags.bytes_per_token // flags.block_size * flags.block_size
    if slots < flags.max_model_len:
        raise checks.invalid(
            "cache_bytes", flags.cache_bytes, f"room for one window of {flags.max_model_len} tokens or more"
        )
    return Limits(
        slots, flags.max_model_len, flags.block_size, flags.max_num_seqs, flags.max_num_batched_tokens
    )


def _requests(flags: argparse.Namespace) -> tuple[Sequence[TraceRequest], str]:
    from octavo_bench.memory.jobs import sharegpt_like
    from octavo_bench.traces import read_trace

    if flags.trace is None:
        drawn = sharegpt_like(flags.requests, flags.seed, flags.request_rate)
        return drawn, f"log-normal lengths like ShareGPT's, seed {flags.seed}"
    return read_trace(flags.trace, flags.trace_format, limit=flags.requests), str(flags.trace)


def _served(flags: argparse.Namespace, jobs: Sequence[Job], limits: Limits) -> Sequence[Served]:
    if flags.serve is None:
        return ()
    from octavo_bench.memory.policies import all_policies
    from octavo_bench.memory.served import serve, shortened

    short, small = shortened(jobs[: flags.serve_requests], limits, flags.serve_scale)
    return serve(flags.serve, short, small, all_policies(small))
