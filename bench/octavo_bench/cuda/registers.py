"""``python -m octavo_bench.cuda.registers``: registers and spills of every kernel, as the compiler reports them.

Needs nvcc and c++filt, and no GPU.
"""

from __future__ import annotations

import argparse
import re
import subprocess
import sys
import tempfile
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[3]
FOLDER = ROOT / "engine" / "backend" / "cuda"
FLAGS = [
    "-std=c++20",
    "-O3",
    "-DNDEBUG",
    "--fmad=false",
    "--expt-relaxed-constexpr",
    "-fatbin",
    "-Xptxas",
    "-v",
]


@dataclass(frozen=True)
class Kernel:
    """One instance of a kernel for one architecture."""

    name: str  # demangled, with template arguments
    architecture: str
    registers: int
    spill_stores: int  # bytes
    spill_loads: int
    shared: int  # bytes, static

    @property
    def base(self) -> str:
        """Without namespace, template arguments and parameters."""
        return re.sub(r"^.*::", "", re.split(r"[<(]", self.name.removeprefix("void "))[0])


def parse(report: str) -> Iterator[Kernel]:
    """The kernels of what ptxas -v says."""
    name = architecture = ""
    stores = loads = 0
    for line in report.splitlines():
        if found := re.search(r"Compiling entry function '(\S+)' for '(\w+)'", line):
            name, architecture = found.groups()
            stores = loads = 0
        elif found := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line):
            stores, loads = (int(x) for x in found.groups())
        elif name and (found := re.search(r"Used (\d+) registers", line)):
            shared = re.search(r"(\d+) bytes smem", line)
            yield Kernel(name, architecture, int(found[1]), stores, loads, int(shared[1]) if shared else 0)
            name = ""


def compile_kernels(nvcc: str, sources: Iterable[Path], architectures: list[str]) -> list[Kernel]:
    """Every kernel of the sources."""
    targets = [f"-gencode=arch=compute_{a},code=sm_{a}" for a in architectures]
    report = ""
    with tempfile.TemporaryDirectory() as folder:
        for source in sources:
            out = f"{folder}/{source.stem}.fatbin"
            command = [nvcc, *FLAGS, *targets, f"-I{ROOT / 'engine'}", "-o", out, str(source)]
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                raise SystemExit(done.stderr)
            report += done.stderr
    plain = subprocess.run(["c++filt"], input=report, capture_output=True, text=True, check=True).stdout
    return list(parse(re.sub(r"'(void )?(octavo[^']*)'", lambda m: f"'{m[2].replace(' ', '')}'", plain)))


def table(kernels: Iterable[Kernel]) -> str:
    """A line for each kernel's instances: how many, their registers, and the worst spill, by architecture."""
    by_name: dict[str, dict[str, list[Kernel]]] = defaultdict(lambda: defaultdict(list))
    for kernel in kernels:
        by_name[kernel.base][kernel.architecture].append(kernel)
    architectures = sorted({a for found in by_name.values() for a in found})
    lines = [
        "| kernel | instances | " + " | ".join(f"{a}: registers, spilled bytes" for a in architectures) + " |"
    ]
    lines.append("| --- " * (2 + len(architectures)) + "|")
    for name, found in sorted(by_name.items()):
        cells = []
        for architecture in architectures:
            used = [k.registers for k in found[architecture]]
            spilled = max(k.spill_stores for k in found[architecture])
            span = str(used[0]) if min(used) == max(used) else f"{min(used)}-{max(used)}"
            cells.append(f"{span}, {spilled}")
        lines.append(f"| `{name}` | {len(found[architectures[0]])} | " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--nvcc", default="/usr/local/cuda/bin/nvcc")
    parser.add_argument("--architectures", nargs="*", default=["80", "89", "90"])
    parser.add_argument("--all", action="store_true", help="every instance on a line of its own")
    parser.add_argument("sources", nargs="*", type=Path, default=sorted(FOLDER.glob("*.cu")))
    flags = parser.parse_args()
    kernels = compile_kernels(flags.nvcc, flags.sources, flags.architectures)
    if flags.all:
        for k in kernels:
            print(f"{k.architecture} {k.registers:4} {k.spill_stores:5} {k.spill_loads:5} {k.name}")
    print(table(kernels))
    return 0


if __name__ == "__main__":
    sys.exit(main())
