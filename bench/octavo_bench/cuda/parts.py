"""The parts of the check, each in a process of its own: one that fails, hangs or crashes does not hide the others."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from typing import Any

# name: (module, function, share of the time)
PARTS = {
    "draws": ("draws", "run", 30),
    "tensors": ("tensors", "run", 30),
    "kernels": ("models", "run_kernels", 70),
    "models": ("models", "run_models", 30),
    "same bits": ("figures", "run_same_bits", 50),
    "attention": ("figures", "run_attention", 40),
    "throughput": ("figures", "run_throughput", 110),
}
LEAST = 5.0  # seconds: with less a part is not begun
TO_DIE = 10.0  # a process whose kernel hangs may not end before the driver lets go of it


def share(parts: Sequence[str], seconds: float) -> float:
    """What the first of these parts may take of the time that is left for all of them."""
    return seconds * PARTS[parts[0]][2] / sum(PARTS[name][2] for name in parts)


def wrong(part: str, what: str) -> dict[str, Any]:
    """The line of a part that did not come to its end."""
    return {"kind": "check", "name": what, "ok": False, "value": None, "unit": "", "goal": None, "part": part}


def run_part(name: str, device: str, tiny: bool, seconds: float) -> list[dict[str, Any]]:
    """What a part told until it ended or its time was over; its errors go to stderr."""
    if seconds < LEAST:
        return [wrong(name, "not run: no time was left")]
    command = [sys.executable, "-m", "octavo_bench.cuda", "--device", device, "--part", name]
    begin = time.monotonic()
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as errors:
        process = subprocess.Popen(
            command + ["--tiny"] * tiny, stdout=out, stderr=errors, start_new_session=True
        )
        try:
            status = process.wait(seconds)
            why = None if status == 0 else f"ended with status {status}"
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            why = f"it took longer than {seconds:.0f} s"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(TO_DIE)
        took = time.monotonic() - begin
        out.seek(0)
        errors.seek(0)
        told, said = out.read(), errors.read()
    lines = [json.loads(line) for line in told.splitlines() if line.startswith("{") and line.endswith("}")]
    lines.append(
        {"kind": "figure", "name": "time of the part", "ok": None, "value": took, "unit": "s", "goal": None}
    )
    if why is not None:
        sys.stderr.write(said)
        last = (said.strip().splitlines() or ["no word"])[-1]
        lines.append(wrong(name, f"{why}: {last}"))
    return [line | {"part": name} for line in lines]
