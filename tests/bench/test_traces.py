"""Traces in the shapes that others publish: lengths, times, and the line that is wrong."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from octavo.errors import InvalidArgumentError
from octavo_bench.traces import lognormal_lengths, read_trace

AZURE = (
    "TIMESTAMP,ContextTokens,GeneratedTokens\n"
    "2023-11-16 18:15:46.6805900,374,44\n"
    "2023-11-16 18:15:50.9951690,396,109\n"
)
BURSTGPT = (
    "Timestamp,Model,Request tokens,Response tokens,Total tokens,Log Type\n"
    "5,ChatGPT,472,18,490,Conversation log\n45,GPT-4,10,0,10,API log\n118.5,ChatGPT,1087,230,1317,API log\n"
)
MOONCAKE = (
    '{"timestamp": 1000, "input_length": 600, "output_length": 6, "hash_ids": [0, 1]}\n'
    '{"timestamp": 4052, "input_length": 520, "output_length": 7, "hash_ids": [0, 9]}\n'
)
SHAREGPT = [
    {
        "id": "a",
        "conversations": [{"from": "human", "value": "What is it?"}, {"from": "gpt", "value": "x" * 40}],
    },
    {"id": "b", "conversations": [{"from": "human", "value": "alone"}]},
    {"id": "c", "conversations": [{"from": "human", "value": "Q"}, {"from": "gpt", "value": "yes"}]},
]
LENGTHS = "prompt_tokens,output_tokens\n5,6\n7,8\n"


def write(folder: Path, text: str) -> Path:
    path = folder / "trace"
    path.write_text(text)
    return path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (AZURE, [(0.0, 374, 44), (4.314579, 396, 109)]),
        (BURSTGPT, [(0.0, 472, 18), (113.5, 1087, 230)]),
        (MOONCAKE, [(0.0, 600, 6), (3.052, 520, 7)]),
        (LENGTHS, [(0.0, 5, 6), (0.0, 7, 8)]),
        ('{"prompt_tokens": 5, "output_tokens": 6, "arrival_s": 2}\n', [(0.0, 5, 6)]),
        (json.dumps(SHAREGPT), [(0.0, 3, 10), (0.0, 1, 1)]),
        ("\n".join(map(json.dumps, SHAREGPT)), [(0.0, 3, 10), (0.0, 1, 1)]),
    ],
    ids=["azure", "burstgpt", "mooncake", "lengths-csv", "lengths-jsonl", "sharegpt", "sharegpt-lines"],
)
def test_every_shape_is_recognized(tmp_path: Path, text: str, expected: list[tuple[float, int, int]]) -> None:
    requests = read_trace(write(tmp_path, text))
    assert [(round(r.arrival_s, 5), r.prompt_tokens, r.output_tokens) for r in requests] == [
        (round(a, 5), p, o) for a, p, o in expected
    ]
    assert len(read_trace(write(tmp_path, text), limit=1)) == 1


def test_mooncake_names_blocks_and_sharegpt_keeps_its_text(tmp_path: Path) -> None:
    assert [r.blocks for r in read_trace(write(tmp_path, MOONCAKE))] == [(0, 1), (0, 9)]
    requests = read_trace(write(tmp_path, json.dumps(SHAREGPT)), count_tokens=lambda text: len(text.split()))
    assert [(r.prompt, r.prompt_tokens) for r in requests] == [("What is it?", 3), ("Q", 1)]


@pytest.mark.parametrize(
    ("text", "place", "what"),
    [
        (AZURE + "2023-11-16 18:15:51,12\n", "line 4", "2 cells"),
        (AZURE + "yesterday,12,3\n", "line 4", "'yesterday'"),
        (AZURE + "2023-11-16 18:15:51,many,3\n", "line 4", "contexttokens 'many'"),
        (LENGTHS + "9,0\n", "line 4", "output_tokens is 0"),
        (BURSTGPT + "nan,GPT-4,1,1,2,API log\n", "line 5", "'nan'"),
        (MOONCAKE + '{"timestamp": 1, "input_length": 5}\n', "line 3", "output_length"),
        (MOONCAKE + '{"timestamp": 1, "input_len\n', "line 3", "malformed"),
        (MOONCAKE + '{"timestamp": 1, "input_length": -5, "output_length": 1}', "line 3", "-5"),
        (json.dumps([*SHAREGPT, {"id": "d"}]), "conversation 4", "conversations"),
        ("a,b\n1,2\n", "its first line", "known shapes"),
        ("", "is empty", ""),
        ("prompt_tokens,output_tokens\n", "holds no requests", ""),
    ],
)
def test_what_is_wrong_is_named_with_its_line(tmp_path: Path, text: str, place: str, what: str) -> None:
    with pytest.raises(InvalidArgumentError) as raised:
        read_trace(write(tmp_path, text))
    assert str(tmp_path) in str(raised.value) and place in str(raised.value) and what in str(raised.value)


def test_an_absent_file_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="nowhere.*No such file"):
        read_trace(tmp_path / "nowhere")


@settings(deadline=None)
@given(data=st.binary(max_size=300), head=st.sampled_from(["", AZURE, MOONCAKE, LENGTHS, "[", "{"]))
def test_no_bytes_do_more_than_raise_an_argument_error(tmp_path_factory, data: bytes, head: str) -> None:
    path = tmp_path_factory.mktemp("t") / "trace"
    path.write_bytes(head.encode() + data)
    try:
        requests = read_trace(path)
    except InvalidArgumentError:
        return
    assert all(r.prompt_tokens >= 1 and r.output_tokens >= 1 and r.arrival_s >= 0 for r in requests)


def test_lognormal_lengths_are_seeded_and_bounded() -> None:
    requests = lognormal_lengths(4000, 7, rate=50.0)
    assert requests == lognormal_lengths(4000, 7, rate=50.0) != lognormal_lengths(4000, 8, rate=50.0)
    assert all(1 <= r.prompt_tokens <= 2048 and 1 <= r.output_tokens <= 2048 for r in requests)
    assert np.median([r.prompt_tokens for r in requests]) == pytest.approx(120, rel=0.1)
    assert np.mean([r.output_tokens for r in requests]) == pytest.approx(310, rel=0.1)
    assert requests[-1].arrival_s == pytest.approx(4000 / 50, rel=0.1)
    assert requests[0].arrival_s == 0.0
