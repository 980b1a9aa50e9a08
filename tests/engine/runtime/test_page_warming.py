"""Memory of the cache is made resident a little ahead of its use, while there are no steps."""

from __future__ import annotations

import os
import platform
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
KERNEL = tuple(int(part) for part in platform.release().split("-")[0].split(".")[:2])
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(KERNEL < (5, 14), reason="MADV_POPULATE_WRITE came with Linux 5.14"),
]

# In a process of its own: what other tests leave resident does not count. Prints by how much an idle engine grew.
GROWTH = """
import sys, time
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from loaded_engine import Served, params

def resident():
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * 4096

with Served(Path(sys.argv[1]), num_blocks=int(sys.argv[3])) as served:
    served.finish([served.submit([1, 2, 3], params(max_tokens=4))])
    before = grown = resident()
    deadline = time.monotonic() + float(sys.argv[5])
    while grown - before < float(sys.argv[4]) and time.monotonic() < deadline:
        time.sleep(0.05)
        grown = resident()
    served.finish([served.submit(served.prompt(200), params(max_tokens=4))])
print(grown - before)
"""


def growth(model: Path, blocks: int, until: int, seconds: float) -> int:
    serving = Path(__file__).parent.parent / "serving"
    command = [sys.executable, "-c", GROWTH, *map(str, (model, serving, blocks, until, seconds))]
    return int(subprocess.run(command, check=True, capture_output=True, text=True).stdout)


def test_an_idle_engine_makes_the_next_blocks_resident(smollm2):
    assert growth(smollm2, blocks=256, until=80 * MIB, seconds=20) >= 80 * MIB  # of 90


def test_no_more_is_made_resident_than_is_near(smollm2):
    assert growth(smollm2, blocks=4096, until=1000 * MIB, seconds=4) < 220 * MIB


PRIORITIES = """
import os, sys
from pathlib import Path
sys.path.insert(0, sys.argv[2])
from loaded_engine import Served, params

with Served(Path(sys.argv[1]), num_blocks=256) as served:
    served.finish([served.submit([1, 2, 3], params(max_tokens=4))])
    for thread in map(int, os.listdir("/proc/self/task")):
        print(os.sched_getscheduler(thread))
"""


def test_it_does_so_at_the_priority_of_the_others(smollm2):
    """Pages are made ready under the lock of the address space: nobody waits for a thread that is not let run."""
    serving = Path(__file__).parent.parent / "serving"
    command = [sys.executable, "-c", PRIORITIES, str(smollm2), str(serving)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    policies = [int(line) for line in done.stdout.splitlines()]
    assert len(policies) >= 3 and set(policies) == {os.SCHED_OTHER}
