"""Schemathesis reads /openapi.json and tries to prove it wrong."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from served import Served

from conftest import Judges

pytestmark = pytest.mark.slow

# Rules between fields that the schema does not tell: a 400 of a request that fits it names one of these.
BETWEEN_FIELDS = {
    "best_of",
    "continue_final_message",
    "min_tokens",
    "response_format",
    "tool_choice",
    "tools",
}


def test_schemathesis(judges: Judges, tiny: Served, tmp_path: Path) -> None:
    judges.need("py/bin/schemathesis")
    done = judges.run(
        [
            *(str(judges.bin / "schemathesis"), "run", f"http://127.0.0.1:{tiny.port}/openapi.json"),
            *("--phases", "examples,coverage,fuzzing", "--max-examples", "60", "--seed", "1"),
            *("--continue-on-failure", "--request-timeout", "20", "--no-color"),
            *("--report", "json", "--report-json-path", "report.json"),
        ],
        tmp_path,
        280,
    )
    report = json.loads((tmp_path / "report.json").read_text())
    assert report["complete"] and not report["errors"], done.stdout[-4000:]
    assert report["operations"]["tested"] == report["operations"]["total"]
    assert report["test_cases"]["generated"] > 1000
    assert {f["type"] for f in report["failures"]} <= {"RejectedPositiveData"}, done.stdout[-8000:]
    bodies = re.findall(r'`(\{"error":.*\})`', done.stdout)
    named = {json.loads(b)["error"]["param"] for b in bodies}
    # A random text is hardly ever a grammar.
    assert {n for n in named if not n.startswith("structured_outputs")} <= BETWEEN_FIELDS, bodies
