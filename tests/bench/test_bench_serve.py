"""``octavo bench serve`` against the mock server, whose pace is known."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from mock_process import MAIN, Mock, mock_server

from octavo.cli import main

SMALL = ("--input-len", "8", "--output-len", "5", "--disable-tqdm")


@pytest.fixture(scope="module")
def mock() -> Iterator[Mock]:
    with mock_server("--ttft-ms", "30", "--itl-ms", "4") as server:
        yield server


def bench(*arguments: Any) -> int:
    return main(["bench", "serve", *map(str, arguments)])


def result(path: Path) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(path.read_text())
    return document


@pytest.mark.slow
@pytest.mark.unsanitized("measures time")
def test_the_result_has_vllms_keys_and_the_mocks_figures(mock: Mock, tmp_path: Path) -> None:
    """Row 109: what is reported is what the server did, within 2 % or 1 ms beyond the lag that the client saw."""
    with mock_server("--ttft-ms", "60", "--ttft-spread-ms", "40", "--itl-ms", "5") as server:
        code = bench(
            *("--base-url", server.url, "--num-prompts", 60, "--request-rate", 60, "--output-len", 30),
            *("--input-len", 8, "--metric-percentiles", "50,90", "--goodput", "ttft:5000", "tpot:1000"),
            *("--save-result", "--save-detailed", "--result-dir", tmp_path, "--result-filename", "r.json"),
            *("--metadata", "who=me", "--disable-tqdm"),
        )
        truth = server.truth()
    assert code == 0
    out = result(tmp_path / "r.json")
    lag = out["harness"]["client_processes"][0]["lag_p99"] * 1e3
    for q in (50, 90):
        ttft = float(np.percentile(truth["ttfts"], q)) * 1e3
        assert out[f"p{q}_ttft_ms"] == pytest.approx(ttft, abs=max(0.02 * ttft, 1.0) + 2 * lag)
    itl = float(np.mean(truth["itls"])) * 1e3
    assert out["mean_tpot_ms"] == pytest.approx(itl, abs=max(0.02 * itl, 1.0))
    assert (out["completed"], out["failed"], out["total_output_tokens"]) == (60, 0, 1800)
    assert out["total_input_tokens"] == 480 and out["who"] == "me" and out["request_rate"] == 60.0
    assert out["request_goodput"] == pytest.approx(out["request_throughput"])
    assert len(out["ttfts"]) == len(out["itls"]) == len(out["errors"]) == 60
    assert out["start_times"] == sorted(out["start_times"]) and len(out["itls"][0]) == 29
    assert {"model_id", "date", "backend", "burstiness", "max_concurrency", "duration", "output_throughput",
            "total_token_throughput", "mean_ttft_ms", "median_tpot_ms", "std_itl_ms", "p90_e2el_ms",
            "max_output_tokens_per_s", "max_concurrent_requests"} <= out.keys()  # fmt: skip
    server_side = out["harness"]["server_metrics"]['vllm:generation_tokens_total{model_name="mock"}']
    assert server_side["last"] == 1801  # the small request that asks whether it answers, too
    assert out["harness"]["steady_state"]["requests"] > 20


@pytest.mark.slow
@pytest.mark.unsanitized("measures the time that a chunk costs")
def test_a_core_takes_in_five_thousand_chunks_per_second(tmp_path: Path) -> None:
    with mock_server("--ttft-ms", "50", "--itl-ms", "10") as server:
        code = bench(
            *("--base-url", server.url, "--num-prompts", 64, "--input-len", 8, "--output-len", 200),
            *("--disable-tqdm", "--save-result", "--result-filename", tmp_path / "r.json"),
        )
    (process,) = result(tmp_path / "r.json")["harness"]["client_processes"]
    assert code == 0 and process["chunks"] == 64 * 200
    assert process["chunks"] / process["cpu_seconds"] > 5000
    assert process["cpu_max"] < 0.85


@pytest.mark.slow
def test_chat_in_a_closed_loop_over_two_processes(mock: Mock, tmp_path: Path, capsys: Any) -> None:
    code = bench(
        *("--base-url", mock.url + "/v1", "--backend", "openai-chat", "--dataset-name", "multi_turn"),
        *("--num-prompts", 24, "--max-concurrency", 4, "--processes", 2, "--num-warmups", 2, *SMALL),
        *("--cancel-share", 0.5, "--cancel-after", 2, "--append-result", "--result-filename", tmp_path / "r"),
    )
    out = result(tmp_path / "r")
    assert code == 0 and out["completed"] + out["harness"]["cancelled"] == 24
    assert out["harness"]["cancelled"] > 0 and out["max_concurrent_requests"] <= 4
    assert len(out["harness"]["client_processes"]) == 2 and "ttfts" not in out
    assert "Queue in the client" in capsys.readouterr().out


@pytest.mark.slow
def test_servers_and_loads_in_turn(mock: Mock, tmp_path: Path, capsys: Any) -> None:
    with mock_server("--ttft-ms", "5", "--itl-ms", "1") as second:
        code = bench(
            *(
                "--base-url",
                mock.url,
                second.url,
                "--num-prompts",
                10,
                "--sweep-max-concurrency",
                1,
                5,
                *SMALL,
            ),
            *("--rounds", 2, "--save-result", "--result-dir", tmp_path, "--result-filename", "r.jsonl"),
        )
    lines = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    assert code == 0 and [line["max_concurrency"] for line in lines] == [1, 1, 5, 5] * 2
    assert len({line["harness"]["url"] for line in lines}) == 2
    table = capsys.readouterr().out
    assert table.count("second / first") == 2 and "5 at once" in table


def test_a_search_doubles_the_rate_while_answers_are_good(mock: Mock, capsys: Any) -> None:
    code = bench(
        *("--base-url", mock.url, "--num-prompts", 20, *SMALL, "--search-rate", "--search-start", 40),
        *("--search-trials", 2, "--goodput", "ttft:20000", "--scrape-interval", 0),
    )
    out = capsys.readouterr().out
    assert code == 0 and "highest rate that met the goal: 80 requests/s; more --search-trials" in out


@pytest.mark.slow
def test_a_picture_is_drawn(mock: Mock, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    one, many = tmp_path / "one.png", tmp_path / "many.png"
    assert bench("--base-url", mock.url, "--num-prompts", 5, *SMALL, "--plot", one) == 0
    assert bench("--base-url", mock.url, "--num-prompts", 3, *SMALL, "--rounds", 2, "--plot", many) == 0
    assert one.read_bytes()[:4] == many.read_bytes()[:4] == b"\x89PNG"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--base-url", "http://127.0.0.1:9"], "http://127.0.0.1:9 cannot be reached"),
        (["--base-url", "URL", "--model", "other"], "has no model 'other'; it has mock"),
        (["--base-url", "example.org"], "--base-url 'example.org'"),
        (["--num-prompts", "0"], "--num-prompts 0"),
        (["--goodput", "ttft"], "--goodput 'ttft'"),
        (["--search-rate"], "--search-rate needs limits"),
        (["--dataset-name", "mooncake"], "--dataset-path is needed"),
        (["--dataset-name", "azure", "--dataset-path", "TRACE"], "line 3: contexttokens 'x'"),
        (["--self-timed"], "--self-timed"),
        (["--request-rate", "-1"], "--request-rate -1"),
        (["--cancel-share", "2"], "--cancel-share 2"),
        (["--ramp-up-strategy", "linear"], "--ramp-up-start-rps"),
        (["--header", "X"], "--header 'X'"),
        (["--percentile-metrics", "ttft,wer"], "--percentile-metrics 'wer'"),
    ],
)
def test_what_cannot_be_done_is_one_line(
    mock: Mock, tmp_path: Path, capsys: Any, arguments: list[str], said: str
) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text(
        "TIMESTAMP,ContextTokens,GeneratedTokens\n2023-11-16 18:15:46,1,2\n2023-11-16 18:15:47,x,2\n"
    )
    arguments = [{"URL": mock.url, "TRACE": str(trace)}.get(a, a) for a in arguments]
    if "--base-url" not in arguments:
        arguments += ["--base-url", mock.url]
    assert bench(*arguments) == 2
    error = capsys.readouterr().err
    assert said in error and error.count("\n") == 1


@pytest.mark.slow
def test_a_server_that_dies_leaves_partial_results_that_say_so(tmp_path: Path, capsys: Any) -> None:
    with mock_server("--ttft-ms", "20", "--itl-ms", "2") as server:
        timer = threading.Timer(1.0, server.process.kill)
        timer.start()
        code = bench(
            *("--base-url", server.url, "--num-prompts", 2000, "--request-rate", 50, *SMALL),
            *("--save-result", "--result-dir", tmp_path, "--result-filename", "r.json"),
        )
        timer.join()
    out = result(tmp_path / "r.json")
    printed = capsys.readouterr()
    assert code == 1 and "PARTIAL" in printed.out and "partial results" in printed.err
    assert "went away" in printed.err and out["harness"]["complete"] is False
    assert out["completed"] > 5 and out["completed"] + out["failed"] == 2000
    assert out["harness"]["failures"]["connect"] >= 10


@pytest.mark.slow
def test_an_interrupt_keeps_what_came(mock: Mock, tmp_path: Path) -> None:
    path = tmp_path / "r.json"
    command = [sys.executable, "-c", MAIN, "bench", "serve", "--base-url", mock.url, "--num-prompts", "5000"]
    command += [
        "--request-rate",
        "50",
        "--processes",
        "2",
        *SMALL,
        "--save-result",
        "--result-filename",
        str(path),
    ]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    before = len(mock.truth()["ttfts"])
    while process.poll() is None and len(mock.truth()["ttfts"]) < before + 40:
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130, (out, err)
    assert "PARTIAL: interrupted" in out
    assert result(path)["harness"]["stopped"] == "interrupted" and result(path)["completed"] > 0
