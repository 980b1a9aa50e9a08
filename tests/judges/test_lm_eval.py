"""lm-eval scores a small local task through the server and through transformers."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from served import Served

from conftest import HERE, MODEL, Judges

pytestmark = pytest.mark.slow


def evaluate(judges: Judges, folder: Path, model: str, arguments: str, *more: str) -> dict[int, list[float]]:
    """Per question the log-likelihood of each choice."""
    done = judges.run(
        [
            *(str(judges.bin / "lm_eval"), "run", "--model", model, "--model_args", arguments),
            *(
                "--tasks",
                "capitals",
                "--include_path",
                ".",
                "--output_path",
                str(folder),
                "--log_samples",
                *more,
            ),
        ],
        HERE / "lm_eval_task",
        280,
    )
    assert done.returncode == 0, done.stdout[-4000:]
    (samples,) = folder.glob("*/samples_*.jsonl")
    rows = [json.loads(line) for line in samples.read_text().splitlines()]
    return {row["doc_id"]: [float(r[0][0]) for r in row["resps"]] for row in rows}


@pytest.mark.timeout(700)
def test_local_completions_scores_equal_those_of_transformers(
    judges: Judges, float32: Served, float32_folder: Path, tmp_path: Path
) -> None:
    """Behaviour 52: every score of every choice, so also what is chosen; twice, so with a warm cache too."""
    judges.need("py/bin/lm_eval")
    url = f"http://127.0.0.1:{float32.port}/v1/completions"
    arguments = f"model={MODEL},base_url={url},tokenizer={float32_folder},num_concurrent=4,max_retries=1"
    cold = evaluate(judges, tmp_path / "cold", "local-completions", arguments)
    warm = evaluate(judges, tmp_path / "warm", "local-completions", arguments)
    assert warm == cold
    reference = evaluate(
        judges, tmp_path / "hf", "hf", f"pretrained={float32_folder},dtype=float32", "--device", "cpu"
    )
    assert cold.keys() == reference.keys() and len(cold) == 12
    for question, scores in reference.items():
        assert cold[question] == pytest.approx(scores, abs=1e-3)
