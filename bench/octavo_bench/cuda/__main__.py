"""``python -m octavo_bench.cuda``: runs the parts one after the other and writes what they told after each."""

from __future__ import annotations

import argparse
import importlib
import json
import sys
import time
from pathlib import Path
from typing import Any

from octavo_bench.cuda.parts import PARTS, run_part, share
from octavo_bench.cuda.report import table
from octavo_bench.cuda.scale import scale_of


def _flags() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="cuda_check", description=__doc__)
    parser.add_argument(
        "--device", default="cuda", help='"cuda", or "cuda-emulated" to test the check itself'
    )
    parser.add_argument(
        "--tiny", action="store_true", help="shapes that the emulated backend passes in seconds"
    )
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS), metavar="PART")
    parser.add_argument("--seconds", type=float, default=330.0, help="for all parts together")
    parser.add_argument("--out", type=Path, help="where the results are written as JSON, after each part")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    return parser.parse_args()


def main() -> int:
    """0 when nothing is wrong; figures below their goals are no error."""
    flags = _flags()
    if flags.part:
        module, function, _ = PARTS[flags.part]
        getattr(importlib.import_module(f"octavo_bench.cuda.{module}"), function)(
            scale_of(flags.device, tiny=flags.tiny)
        )
        return 0
    lines: list[dict[str, Any]] = []
    end = time.monotonic() + flags.seconds
    for i, name in enumerate(flags.parts):
        seconds = share(flags.parts[i:], end - time.monotonic())
        part = run_part(name, flags.device, flags.tiny, seconds)
        print(table(part), flush=True)
        lines += part
        if flags.out:
            flags.out.write_text(json.dumps(lines, indent=1))
    return 0 if lines and all(line["ok"] for line in lines if line["kind"] == "check") else 1


if __name__ == "__main__":
    sys.exit(main())
