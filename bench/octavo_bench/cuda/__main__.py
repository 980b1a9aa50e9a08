"""``python -m octavo_bench.cuda``: runs the parts one after the other, each in a process and a time of its own."""

from __future__ import annotations

import argparse
import importlib
import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from octavo_bench.cuda.report import table
from octavo_bench.cuda.scale import scale_of

# name: (module, function, seconds)
PARTS = {
    "draws": ("draws", "run", 30),
    "tensors": ("tensors", "run", 30),
    "kernels": ("models", "run_kernels", 70),
    "models": ("models", "run_models", 30),
    "same bits": ("figures", "run_same_bits", 50),
    "attention": ("figures", "run_attention", 40),
    "throughput": ("figures", "run_throughput", 110),
}


def _run_part(name: str, device: str, tiny: bool, seconds: float) -> list[dict[str, Any]]:
    """What a part told until it ended or its time was over."""
    command = [sys.executable, "-m", "octavo_bench.cuda", "--device", device, "--part", name]
    begin = time.monotonic()
    process = subprocess.Popen(
        command + ["--tiny"] * tiny,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        out, errors = process.communicate(timeout=seconds)
        why = (
            None
            if process.returncode == 0
            else (errors.strip().splitlines() or ["it ended without a word"])[-1]
        )
    except subprocess.TimeoutExpired:
        os.killpg(process.pid, signal.SIGKILL)
        out, errors = process.communicate()
        why = f"it took longer than {seconds:.0f} s"
    if why is not None:
        sys.stderr.write(errors)
    lines = [json.loads(line) for line in out.splitlines() if line.startswith("{") and line.endswith("}")]
    lines.append(
        {"kind": "figure", "name": "time of the part", "ok": None, "value": time.monotonic() - begin, "unit": "s",
         "goal": None}
    )  # fmt: skip
    if why is not None:
        lines.append(
            {"kind": "check", "name": f"ended: {why}", "ok": False, "value": None, "unit": "", "goal": None}
        )
    return [line | {"part": name} for line in lines]


def main() -> int:
    """0 when nothing is wrong; figures below their goals are no error."""
    parser = argparse.ArgumentParser(prog="cuda_check", description=__doc__)
    parser.add_argument(
        "--device", default="cuda", help='"cuda", or "cuda-emulated" to test the check itself'
    )
    parser.add_argument(
        "--tiny", action="store_true", help="shapes that the emulated backend passes in seconds"
    )
    parser.add_argument("--parts", nargs="*", default=list(PARTS), choices=list(PARTS), metavar="PART")
    parser.add_argument("--seconds", type=float, default=300.0, help="for all parts together")
    parser.add_argument("--out", type=Path, help="where the results are written as JSON, after each part")
    parser.add_argument("--part", choices=list(PARTS), help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.part:
        module, function, _ = PARTS[flags.part]
        getattr(importlib.import_module(f"octavo_bench.cuda.{module}"), function)(
            scale_of(flags.device, tiny=flags.tiny)
        )
        return 0
    lines: list[dict[str, Any]] = []
    end = time.monotonic() + flags.seconds
    for name in flags.parts:
        seconds = min(float(PARTS[name][2]), end - time.monotonic()) if flags.device == "cuda" else 120.0
        if seconds < 1:
            print(f"{name}: no time is left for it", file=sys.stderr)
            continue
        part = _run_part(name, flags.device, flags.tiny, seconds)
        print(table(part), flush=True)
        lines += part
        if flags.out:
            flags.out.write_text(json.dumps(lines, indent=1))
    return 0 if lines and all(line["ok"] for line in lines if line["kind"] == "check") else 1


if __name__ == "__main__":
    sys.exit(main())
