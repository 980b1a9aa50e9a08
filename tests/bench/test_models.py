"""``octavo bench model``: what it writes is one and the same model in every form, and kernels are held to figures."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest

from octavo import LLM, SamplingParams
from octavo.cli.main import main
from octavo_bench.kernels import report
from octavo_bench.kernels.timing import Figure
from octavo_bench.models.vocabulary import vocabulary

PROMPT = list(range(300, 340))


def scores(model: Path) -> list[float]:
    params = SamplingParams(temperature=0.0, max_tokens=6, ignore_eos=True, logprobs=1)
    with LLM(str(model), threads=1, num_gpu_blocks_override=64) as llm:
        (output,) = llm.generate([{"prompt_token_ids": PROMPT}], params, use_tqdm=False)
        assert llm.get_tokenizer().decode([1 + ord("a"), 257]) != ""
    logprobs = output.outputs[0].logprobs
    assert logprobs is not None
    return [next(iter(position.values())).logprob for position in logprobs]


def write(out: Path, *flags: str) -> Path:
    assert main(["bench", "model", *flags, "--out", str(out)]) == 0
    return out


def test_a_folder_and_a_gguf_hold_the_same_random_model(tmp_path: Path) -> None:
    folder = write(tmp_path / "folder", "--shape", "tiny", "--format", "bf16")
    file = write(tmp_path / "model.gguf", "--shape", "tiny", "--format", "bf16")
    assert scores(folder) == scores(file)


def test_a_converted_gguf_keeps_all_but_the_format(tmp_path: Path) -> None:
    source = write(tmp_path / "source.gguf", "--shape", "tiny", "--format", "f32")
    target = write(tmp_path / "target.gguf", "--source", str(source), "--format", "q8_0")
    before, after = gguf.GGUFReader(source), gguf.GGUFReader(target)
    changed = {"general.file_type", "GGUF.kv_count"}
    assert set(before.fields) == set(after.fields)
    for name, field in before.fields.items():
        assert name in changed or field.contents() == after.fields[name].contents(), name
    for a, b in zip(before.tensors, after.tensors, strict=True):
        values = gguf.quants.dequantize(b.data, b.tensor_type)
        assert b.tensor_type.name == ("F32" if a.data.ndim == 1 else "Q8_0")
        np.testing.assert_allclose(values, a.data, atol=0.1 / 127)
    assert scores(source) == pytest.approx(scores(target), abs=0.05)


def test_the_vocabulary_joins_every_pair_by_a_merge() -> None:
    words = vocabulary(32000)
    assert len(set(words.tokens)) == 32000
    assert [a + b for a, b in words.merges] == words.tokens[257:]


def test_a_kernel_that_fell_below_the_committed_share_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(report, "BASELINES", tmp_path)
    old = [Figure("k", "a", 80.0, "GB/s", 100.0, 0.0), Figure("k", "b", 80.0, "GB/s", 100.0, 0.0)]
    new = [Figure("k", "a", 73.0, "GB/s", 100.0, 0.0), Figure("k", "b", 71.0, "GB/s", 100.0, 0.0)]
    report.write(old, {}, 2, "avx2", tmp_path / "avx2-2.json")
    assert report.regressions(new, report.baseline("avx2", 2)) == [
        "k b GB/s: 71.0 % of the ceiling, was 80.0 %"
    ]
    assert json.loads((tmp_path / "avx2-2.json").read_text())["isa"] == "avx2"


def test_what_cannot_be_written_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["bench", "model", "--shape", "tiny", "--format", "q4_0", "--out", str(tmp_path / "x")]) != 0
    assert "a folder holds random weights as f32, f16 or bf16" in capsys.readouterr().err
    assert main(["bench", "kernels", "--only", "linear q4_0", "--baseline", "--threads", "37"]) != 0
    assert "no committed figures" in capsys.readouterr().err
