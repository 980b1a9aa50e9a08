"""A server process from its first line to its exit status."""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from http.client import HTTPConnection, HTTPResponse
from pathlib import Path
from typing import Any

import pytest

HERE = Path(__file__).parent


def start(**options: Any) -> subprocess.Popen[str]:
    path = os.pathsep.join([str(HERE), *(p for p in sys.path if p)])
    return subprocess.Popen(
        [sys.executable, str(HERE / "scripted_server.py"), json.dumps(options)],
        env={**os.environ, "PYTHONPATH": path},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@contextmanager
def server(**options: Any) -> Iterator[tuple[subprocess.Popen[str], int]]:
    process = start(**options)
    try:
        assert process.stdout is not None
        line = process.stdout.readline()
        found = re.search(r"http://127\.0\.0\.1:(\d+)/v1", line)
        assert found, line + process.stderr.read()  # type: ignore[union-attr]
        yield process, int(found.group(1))
    finally:
        process.kill()
        process.communicate()


def post(port: int, stream: bool = True) -> HTTPResponse:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    body = {"stream": stream, "messages": [{"role": "user", "content": "Hi"}]}
    connection.request("POST", "/v1/chat/completions", json.dumps(body))
    return connection.getresponse()


def get(port: int, path: str) -> int:
    connection = HTTPConnection("127.0.0.1", port, timeout=30)
    connection.request("GET", path)
    return connection.getresponse().status


def finishes(text: bytes) -> list[str]:
    return re.findall(r'"finish_reason":"(\w+)"', text.decode())


def test_sigterm_lets_open_streams_finish_and_refuses_new_ones() -> None:
    """Behaviour 91."""
    with server(tokens=20, step_seconds=0.05) as (process, port), ThreadPoolExecutor(11) as pool:
        streams = [post(port) for _ in range(10)]
        texts = [pool.submit(s.read) for s in streams]
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        late = post(port)
        assert late.status == 503 and late.headers["Retry-After"] and json.loads(late.read())["error"]["code"]
        assert get(port, "/ready") == 503 and get(port, "/health") == 200
        for text in texts:
            body = text.result(10)
            assert finishes(body) == ["stop"] and body.endswith(b"data: [DONE]\n\n")
        assert process.wait(5) == 0


@pytest.mark.slow
def test_sixty_four_streams_end_properly_when_their_time_is_over() -> None:
    """Half of them end in time, the others with what they have; none is cut."""
    with (
        server(tokens=30, step_seconds=0.02, max_num_seqs=32, shutdown_seconds=1.0) as (process, port),
        ThreadPoolExecutor(64) as pool,
    ):
        texts = [pool.submit(post(port).read) for _ in range(64)]
        process.send_signal(signal.SIGTERM)
        bodies = [text.result(20) for text in texts]
        assert all(body.endswith(b"data: [DONE]\n\n") for body in bodies)
        ends = [finishes(body) for body in bodies]
        assert all(len(end) == 1 and end[0] in ("stop", "abort") for end in ends)
        assert ["stop"] in ends and ["abort"] in ends
        assert process.wait(10) == 0


@pytest.mark.slow
def test_an_engine_that_does_not_stop_is_left_behind() -> None:
    with server(tokens=1000, step_seconds=0.05, hangs_at_shutdown=True) as (process, port):
        stream = post(port)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        start = time.monotonic()
        process.send_signal(signal.SIGTERM)
        assert process.wait(5) == 1 and time.monotonic() - start < 4
        stream.close()


@pytest.mark.slow
def test_what_does_not_finish_in_time_is_aborted_with_a_last_chunk() -> None:
    with server(tokens=1000, step_seconds=0.05, shutdown_seconds=0.3) as (process, port):
        with ThreadPoolExecutor(11) as pool:
            texts = [pool.submit(post(port).read) for _ in range(10)]
            whole = pool.submit(lambda: post(port, stream=False).read())
            time.sleep(0.3)
            process.send_signal(signal.SIGTERM)
            for text in texts:
                body = text.result(10)
                assert finishes(body) == ["abort"] and body.endswith(b"data: [DONE]\n\n")
            assert json.loads(whole.result(10))["choices"][0]["finish_reason"] == "abort"
        assert process.wait(5) == 0


@pytest.mark.slow
def test_what_a_drain_says() -> None:
    with server(tokens=20, step_seconds=0.05, log_level="info") as (process, port):
        stream = post(port)
        process.send_signal(signal.SIGTERM)
        assert finishes(stream.read()) == ["stop"]
        assert process.wait(5) == 0
        assert process.stderr is not None
        log = process.stderr.read()
    assert "draining 1 request for" in log and log.rstrip().endswith("stopped")
    assert "POST /v1/chat/completions 200 in " in log and "Traceback" not in log


@pytest.mark.slow
def test_a_second_signal_leaves_at_once() -> None:
    with server(tokens=1000, step_seconds=0.05, shutdown_seconds=60) as (process, port):
        stream = post(port)
        process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert process.poll() is None
        process.send_signal(signal.SIGTERM)
        assert process.wait(3) != 0
        stream.close()


@pytest.mark.parametrize("busy", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ctrl_c_ends_it_within_five_seconds(busy: bool) -> None:
    """Behaviour 92."""
    with server(tokens=1000, step_seconds=0.05, shutdown_seconds=60) as (process, port):
        stream = post(port) if busy else None
        process.send_signal(signal.SIGINT)
        assert process.wait(5) == 0
        if stream is not None:
            assert finishes(stream.read()) == ["abort"]
        assert process.stderr is not None and "Traceback" not in process.stderr.read()


@contextmanager
def loading(**options: Any) -> Iterator[tuple[subprocess.Popen[str], int]]:
    """A server that listens and has no model yet."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    process = start(port=port, **options)
    try:
        deadline = time.monotonic() + 20
        while True:
            try:
                assert get(port, "/health") == 200
                break
            except ConnectionRefusedError:
                assert time.monotonic() < deadline
                time.sleep(0.02)
        yield process, port
    finally:
        process.kill()
        process.communicate()


def test_the_server_listens_while_the_model_loads(tmp_path: Path) -> None:
    go = tmp_path / "go"
    with loading(loads_after=str(go)) as (process, port):
        assert get(port, "/ready") == 503
        assert post(port).status == 503
        go.touch()
        assert process.stdout is not None and "answers at" in process.stdout.readline()
        assert get(port, "/ready") == 200
        assert post(port).status == 200


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "status", "says"), [(signal.SIGTERM, 0, ""), (signal.SIGINT, 130, "octavo: interrupted\n")]
)
def test_a_signal_while_loading_does_not_wait_for_the_model(number: int, status: int, says: str) -> None:
    with loading(load_seconds=60.0) as (process, _):
        process.send_signal(number)
        assert process.wait(5) == status
        assert process.stderr is not None and process.stderr.read() == says


@pytest.mark.parametrize(
    "options", [{"load_error": "no such\nmodel: 'x'"}, pytest.param({"port": -1}, marks=pytest.mark.slow)]
)
def test_what_the_operator_got_wrong_is_one_line_and_status_2(options: dict[str, Any]) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        if "port" in options:
            options = {"port": taken.getsockname()[1], "load_seconds": 30}
        process = start(**options)
        out, err = process.communicate(timeout=15)
    assert process.returncode == 2
    assert out == "" and len(err.splitlines()) == 1 and err.startswith("octavo: error: ")


def test_serving_imports_neither_torch_nor_transformers() -> None:
    code = (
        "import octavo_gateway.server.lifecycle, octavo_gateway.server.start, sys; "
        "print([m for m in sys.modules])"
    )
    path = os.pathsep.join(p for p in sys.path if p)
    out = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    assert "aiohttp" in out and "'torch'" not in out and "'transformers'" not in out
    assert "'prometheus_client'" not in out and "'numpy'" not in out


LOST = """
import signal, sys
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.server.settings import ServerSettings
from octavo_gateway.server.start import run_server

class Dying:
    def __del__(self):  # what is raised here is ignored, as in the callbacks of the import machinery
        signal.raise_signal(signal.SIGINT)

class Finder:
    def find_spec(self, name, path=None, target=None):
        if name == "octavo_gateway.server.lifecycle":
            Dying()

sys.meta_path.insert(0, Finder())
sys.exit(run_server(lambda: signal.pause(), ApiSettings(served_names=("tiny",)), ServerSettings(port=0)))
"""


def test_an_interrupt_during_an_import_is_not_lost() -> None:
    """Behaviour 92."""
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    process = subprocess.run(
        [sys.executable, "-c", LOST], env=env, capture_output=True, text=True, timeout=20
    )
    assert (process.returncode, process.stderr) == (130, "octavo: interrupted\n")


@pytest.mark.slow
def test_a_lost_device_ends_the_process_with_its_reason() -> None:
    with server(lost_after=1.0) as (process, port):
        reasons = set()
        while process.poll() is None:
            try:
                connection = HTTPConnection("127.0.0.1", port, timeout=5)
                connection.request("GET", "/ready")
                answer = connection.getresponse()
                if answer.status == 503:
                    reasons.add(json.load(answer)["error"]["message"])
            except OSError:
                pass
            time.sleep(0.02)
        assert process.returncode == 1
        assert "the device is lost, the process ends: an illegal address" in process.stderr.read()  # type: ignore[union-attr]
        assert reasons <= {"Not ready: the device is lost: an illegal address."}
