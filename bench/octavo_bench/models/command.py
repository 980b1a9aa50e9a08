"""``octavo bench model``."""

from __future__ import annotations

import argparse
from pathlib import Path

FORMATS = ("f32", "f16", "bf16", "q4_0", "q4_1", "q5_0", "q5_1", "q8_0")


def configure(parser: argparse.ArgumentParser) -> None:
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--shape", help="random weights in this shape: 1b, tiny")
    what.add_argument(
        "--source", type=Path, metavar="FILE", help="the weights of this GGUF file, written as GGUF"
    )
    parser.add_argument("--format", default="bf16", help=f"of the matrices: {', '.join(FORMATS)}")
    parser.add_argument("--seed", type=int, default=0, help="of random weights")
    parser.add_argument(
        "--out",
        type=Path,
        required=True,
        metavar="PATH",
        help="a .gguf file (needs the package gguf), or a folder for safetensors (needs torch and safetensors)",
    )


def run(flags: argparse.Namespace) -> int:
    from octavo.errors import InvalidArgumentError
    from octavo_bench.models.shapes import SHAPES

    if flags.format not in FORMATS:
        raise InvalidArgumentError(
            f"--format must be one of {', '.join(FORMATS)}, got {flags.format!r}", param="format"
        )
    if flags.shape is not None and flags.shape not in SHAPES:
        raise InvalidArgumentError(
            f"--shape must be one of {', '.join(SHAPES)}, got {flags.shape!r}", param="shape"
        )
    as_gguf = flags.out.suffix == ".gguf"
    if not as_gguf and (flags.source is not None or flags.format not in ("f32", "f16", "bf16")):
        raise InvalidArgumentError(
            "a folder holds random weights as f32, f16 or bf16: name a .gguf file with --out", param="out"
        )
    try:
        if as_gguf:
            from octavo_bench.models import gguf_file

            if flags.source is not None:
                gguf_file.convert(flags.source, flags.format, flags.out)
            else:
                gguf_file.write_random(SHAPES[flags.shape], flags.format, flags.out, flags.seed)
        else:
            from octavo_bench.models import folder

            folder.write_random(SHAPES[flags.shape], flags.format, flags.out, flags.seed)
    except ModuleNotFoundError as error:
        raise InvalidArgumentError(
            f"writing {flags.out} needs the package {error.name}: pip install {error.name}", param="out"
        ) from None
    size = flags.out.stat().st_size if as_gguf else sum(f.stat().st_size for f in flags.out.iterdir())
    print(f"{flags.out}: {size / 1e6:.0f} MB")
    return 0
