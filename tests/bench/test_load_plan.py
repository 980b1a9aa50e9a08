"""What a load consists of: prompts of exact lengths, times fixed in advance, histograms that others read."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hdrh.histogram import HdrHistogram
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidArgumentError
from octavo_bench.client import Shot
from octavo_bench.client.histogram import encode_histogram
from octavo_bench.datasets import DatasetOptions, make_shots
from octavo_bench.serve.goodput import Goodput
from octavo_bench.serve.schedule import Traffic, due_times, schedule
from octavo_bench.serve.scrape import parse_samples


@settings(max_examples=30, deadline=None)
@given(st.lists(st.floats(0, 4000), max_size=200))
def test_histograms_are_read_by_hdrhistogram(values: list[float]) -> None:
    histogram = HdrHistogram.decode(encode_histogram(np.array(values)))
    assert histogram.get_total_count() == len(values)
    for q in (0, 50, 99, 100) if values else ():
        expected = np.percentile(np.clip(values, 0, 3600), q, method="inverted_cdf") * 1e6
        assert histogram.get_value_at_percentile(q) == pytest.approx(expected, rel=0.001, abs=1)


@pytest.mark.parametrize("shape", [0.5, 1.0, 4.0, float("inf")])
def test_gaps_are_gamma_and_the_rate_is_exact(shape: float) -> None:
    times = due_times(Traffic(rate=50.0, burstiness=shape), 20000, np.random.default_rng(1))
    gaps = np.diff(times, prepend=0.0)
    assert times[-1] == pytest.approx(400.0)
    assert (gaps >= 0).all()
    assert gaps.std() / gaps.mean() == pytest.approx(0 if np.isinf(shape) else shape**-0.5, abs=0.03)


@pytest.mark.parametrize(("ramp", "middle"), [("linear", 30.0), ("exponential", np.sqrt(10 * 50))])
def test_a_ramp_goes_from_one_rate_to_the_other(ramp: str, middle: float) -> None:
    traffic = Traffic(ramp=ramp, ramp_start=10.0, ramp_end=50.0, burstiness=float("inf"))
    gaps = np.diff(due_times(traffic, 1001, np.random.default_rng(0)))
    assert 1 / gaps[[0, 499, -1]] == pytest.approx([10.0, middle, 50.0], rel=0.01)


def test_a_schedule_is_fixed_by_its_seed_and_mixes_as_asked() -> None:
    traffic = Traffic(rate=10.0, cancel_share=0.2, slow_share=0.3, cancel_after=4, slow_rate=7.0)
    shots = [Shot(0.0, [1], 1) for _ in range(4000)]
    plan = schedule(shots, traffic, (3, 0))
    assert plan == schedule(shots, traffic, (3, 0)) != schedule(shots, traffic, (3, 1))
    assert Counter(s.cancel_after for s in plan)[4] == pytest.approx(800, rel=0.1)
    assert Counter(s.read_rate for s in plan)[7.0] == pytest.approx(1200, rel=0.1)
    assert not any(s.cancel_after and s.read_rate for s in plan)


def test_a_trace_is_replayed_at_its_times() -> None:
    shots = [Shot(0.0, [1], 1), Shot(3.0, [1], 1)]
    plan = schedule(shots, Traffic(self_timed=True, time_scale=2.0), 0)
    assert [s.due for s in plan] == [0.0, 1.5]


def test_random_prompts_have_exact_lengths() -> None:
    """Row 111: token ids, so that no tokenizer changes the length."""
    shots = make_shots(DatasetOptions(input_len=40, output_len=7, prefix_len=8, range_ratio=0.5), 300, 1)
    prefixes = {tuple(s.prompt[:8]) for s in shots}
    assert len(prefixes) == 1
    assert {len(s.prompt) for s in shots} == set(range(28, 69))
    assert {s.max_tokens for s in shots} == set(range(3, 12))
    assert all(300 <= t < 10000 for s in shots for t in s.prompt)
    assert all(s.extra == {"ignore_eos": True} for s in shots)
    assert len(make_shots(DatasetOptions(input_len=40, text=True), 1, 1)[0].prompt.split()) == 40


def test_prefix_groups_follow_zipf() -> None:
    options = DatasetOptions("prefix_repetition", input_len=2, prefix_len=16, num_prefixes=8, zipf=1.0)
    groups = Counter(tuple(s.prompt[:16]) for s in make_shots(options, 4000, 2)).most_common()
    assert len(groups) == 8
    assert groups[0][1] / groups[3][1] == pytest.approx(4, rel=0.25)
    even = DatasetOptions("prefix_repetition", input_len=2, prefix_len=16, num_prefixes=8)
    assert set(Counter(tuple(s.prompt[:16]) for s in make_shots(even, 4000, 2)).values()) == {500}


def test_conversations_name_the_turn_before() -> None:
    shots = make_shots(DatasetOptions("multi_turn", input_len=3, turns=3, text=True, think_s=0.5), 8, 0)
    assert [s.previous for s in shots] == [None, 0, 1, None, 3, 4, None, 6]
    plan = schedule(shots, Traffic(rate=2.0, cancel_share=1.0), 0)
    assert [s.cancel_after is not None for s in plan] == [False, False, True] * 2 + [False, True]


def test_equal_blocks_of_a_trace_are_equal_prefixes(tmp_path: Path) -> None:
    path = tmp_path / "trace.jsonl"
    lines = [
        {"timestamp": 0, "input_length": 1100, "output_length": 3, "hash_ids": [7, 8, 9]},
        {"timestamp": 5, "input_length": 1030, "output_length": 900, "hash_ids": [7, 8, 10]},
        {"timestamp": 9, "input_length": 5000, "output_length": 1, "hash_ids": [7]},
    ]
    path.write_text("\n".join(map(json.dumps, lines)))
    a, b = make_shots(DatasetOptions("mooncake", str(path), max_input_len=2000, max_output_len=64), 10, 4)
    assert (len(a.prompt), a.max_tokens, len(b.prompt), b.max_tokens) == (1100, 3, 1030, 64)
    assert a.prompt[:1024] == b.prompt[:1024] and a.prompt[1024:1030] != b.prompt[1024:]
    assert (a.due, b.due) == (0.0, 0.005)


def test_files_of_prompts(tmp_path: Path) -> None:
    path = tmp_path / "p.jsonl"
    path.write_text('{"prompt": "a"}\n{"prompt": "b", "output_tokens": 5}\n')
    shots = make_shots(DatasetOptions("custom", str(path)), 5, 0)
    assert {(s.prompt, s.max_tokens) for s in shots} == {("a", 256), ("b", 5)} and len(shots) == 5
    assert len(make_shots(DatasetOptions("custom", str(path), oversample=False), 5, 0)) == 2
    path.write_text('{"prompt": "a"}\n{"text": "b"}\n')
    with pytest.raises(InvalidArgumentError, match="line 2"):
        make_shots(DatasetOptions("custom", str(path)), 5, 0)


def test_goodput_is_parsed_and_its_mistakes_named() -> None:
    assert Goodput.parse(["ttft:500", "e2el:2000.5"]).limits == {"ttft": 0.5, "e2el": 2.0005}
    for bad in ("ttft", "ttft:", "itl:5", "ttft:-1", "ttft:nan"):
        with pytest.raises(InvalidArgumentError, match=bad):
            Goodput.parse([bad])


def test_samples_of_an_exposition() -> None:
    text = '# HELP a b\na{x="y z"} 1 1700000000\nb 2e3\nc_bucket{le="1"} 4\nd NaN\nbroken\nprocess_cpu 1\n'
    samples = parse_samples(text)
    assert samples.pop("d") != samples.get("d")
    assert samples == {'a{x="y z"}': 1.0, "b": 2000.0}
