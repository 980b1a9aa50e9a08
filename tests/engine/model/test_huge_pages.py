"""Weights lie in memory for which huge pages are asked, however small the matrices of a layer are."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

MIB = 1 << 20
pytestmark = [
    pytest.mark.skipif(
        not Path("/sys/kernel/mm/transparent_hugepage").is_dir(), reason="this kernel has no huge pages"
    ),
    pytest.mark.unsanitized("there every matrix has a buffer of its own"),
]

# In a process of its own, which prints its mappings.
MAPPINGS = """
import sys
from octavo.engine_args import EngineArgs
from octavo.loading import load

model = load(EngineArgs(model=sys.argv[1], skip_tokenizer_init=True))
print(open("/proc/self/smaps").read())
model.shutdown()
"""


def test_a_small_model_s_weights_are_in_huge_pages(smollm2: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", MAPPINGS, str(smollm2)], check=True, capture_output=True, text=True
    )
    mappings = re.split(r"^(?=[0-9a-f]+-[0-9a-f]+ )", done.stdout, flags=re.M)[1:]
    asked = [m for m in mappings if re.search(r"^VmFlags:.*\bhg\b", m, flags=re.M)]
    resident = sum(int(re.search(r"^Rss:\s+(\d+) kB", m, flags=re.M)[1]) * 1024 for m in asked)
    assert (
        resident > 90 * MIB
    )  # of 92, of which the layers, none of whose matrices fills a huge page, take 63
