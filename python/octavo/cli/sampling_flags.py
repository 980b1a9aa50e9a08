"""The flags that say how tokens are chosen."""

from __future__ import annotations

import argparse

from octavo.sampling_params import SamplingParams


def add_sampling_flags(parser: argparse.ArgumentParser) -> None:
    """Flags named as the fields of ``SamplingParams``."""
    group = parser.add_argument_group("sampling")
    group.add_argument("--temperature", type=float, default=0.7, help="0 always takes the most likely token")
    group.add_argument(
        "--top-p", type=float, default=1.0, help="keep the most likely tokens up to this probability"
    )
    group.add_argument(
        "--top-k", type=int, default=0, help="keep this many of the most likely tokens; 0: all"
    )
    group.add_argument(
        "--min-p", type=float, default=0.0, help="drop tokens below this share of the best one"
    )
    group.add_argument("--repetition-penalty", type=float, default=1.0, help="above 1 discourages repetition")
    group.add_argument("--seed", type=int, help="makes the answer reproducible; random without it")
    group.add_argument(
        "--max-tokens", type=int, help="most tokens to generate; what the window leaves by default"
    )
    group.add_argument(
        "--stop", action="append", help="text that ends the answer; may be given several times"
    )


def sampling_params(flags: argparse.Namespace) -> SamplingParams:
    """The parameters that the flags ask for."""
    return SamplingParams(
        temperature=flags.temperature,
        top_p=flags.top_p,
        top_k=flags.top_k,
        min_p=flags.min_p,
        repetition_penalty=flags.repetition_penalty,
        seed=flags.seed,
        max_tokens=flags.max_tokens,
        stop=flags.stop,
    )
