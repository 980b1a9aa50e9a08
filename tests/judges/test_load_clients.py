"""Two load clients that measure one server agree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pytest
from test_lifecycle import server

from octavo.cli import main

if TYPE_CHECKING:
    from conftest import Judges

pytestmark = [pytest.mark.slow, pytest.mark.unsanitized("measures time")]

REQUESTS, STREAMS, TOKENS = 24, 4, 24


def test_guidellm_reports_the_same(judges: Judges, tiny_folder: Path, tmp_path: Path) -> None:
    """Octavo's gateway before an engine that takes 200 ms to the first token and 50 ms to each that follows."""
    judges.need("py/bin/guidellm")
    with server(tokens=TOKENS, first_step_seconds=0.15, step_seconds=0.05) as (_, port):
        url = f"http://127.0.0.1:{port}"
        ours = tmp_path / "ours.json"
        code = main(
            [
                *("bench", "serve", "--base-url", url, "--dataset-name", "custom", "--disable-tqdm"),
                *("--dataset-path", str(prompts(tmp_path)), "--num-prompts", str(REQUESTS)),
                *("--max-concurrency", str(STREAMS), "--output-len", str(TOKENS)),
                *("--save-result", "--result-filename", str(ours)),
            ]
        )
        assert code == 0
        done = judges.run(
            [
                *(str(judges.bin / "guidellm"), "run", "--disable-console-interactive"),
                *("--backend", f"kind=openai_http,target={url},model=tiny,request_format=/v1/completions"),
                *("--profile", f"kind=concurrent,streams={STREAMS}"),
                *("--constraint", f"kind=max_requests,count={REQUESTS}"),
                *("--data", f"kind=synthetic_text,prompt_tokens=16,output_tokens={TOKENS}"),
                *("--tokenizer", f"kind=hf_auto,model={tiny_folder}"),
                *("--output", f"kind=json,path={tmp_path / 'theirs.json'}"),
            ],
            tmp_path,
            200,
        )
    assert done.returncode == 0, done.stdout[-4000:]
    (benchmark,) = json.loads((tmp_path / "theirs.json").read_text())["benchmarks"]
    theirs = benchmark["requests"]["successful"]
    mine = json.loads(ours.read_text())
    assert mine["completed"] == len(theirs) == REQUESTS
    assert mine["total_output_tokens"] == sum(r["output_tokens"] for r in theirs)
    for key, name, unit in (
        ("median_ttft_ms", "time_to_first_token_ms", 1.0),
        ("median_tpot_ms", "inter_token_latency_ms", 1.0),
        ("median_e2el_ms", "request_latency", 1e3),
    ):
        assert mine[key] == pytest.approx(float(np.median([r[name] for r in theirs])) * unit, rel=0.05), key


def prompts(folder: Path) -> Path:
    """The scripted engine's tokens are bytes, so these prompts are text."""
    path = folder / "prompts.jsonl"
    path.write_text("".join(json.dumps({"prompt": f"Question {i}"}) + "\n" for i in range(REQUESTS)))
    return path
