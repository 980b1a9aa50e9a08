"""A server with a model, stopped and ended while it has work."""

from __future__ import annotations

import http.client
import os
import signal
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from served import octavo_serve

pytestmark = pytest.mark.slow

FLAGS = ("--max-model-len", "1024", "--threads", "1", "--kv-cache-memory", "256MiB", "--crash-dir", "")


def test_sigterm_with_64_streams_of_a_model() -> None:
    """Behaviour 91."""
    with ThreadPoolExecutor(64) as pool:
        with octavo_serve(*FLAGS, "--max-num-seqs", "48", "--shutdown-timeout", "4") as served:

            def stream(i: int) -> str:
                # Some are done in time, some run and some still wait.
                length = 4 if i % 4 == 0 else 900
                _, text = served.chat(stream=True, max_tokens=length, ignore_eos=True, seed=i)
                return str(text)

            texts = [pool.submit(stream, i) for i in range(64)]
            deadline = time.monotonic() + 30
            while served.metric("vllm:num_requests_running") < 40:
                assert time.monotonic() < deadline
                time.sleep(0.05)
        # Leaving the block has sent SIGTERM and found status 0.
        bodies = [text.result(5) for text in texts]
    assert all(body.endswith("data: [DONE]\n\n") for body in bodies)
    assert all(body.count('"finish_reason":"') == 1 for body in bodies)
    assert any('"finish_reason":"length"' in body for body in bodies)
    assert any('"finish_reason":"abort"' in body for body in bodies)


def test_a_process_that_was_stopped_goes_on() -> None:
    with octavo_serve(*FLAGS, "--stall-timeout", "1") as served, ThreadPoolExecutor(4) as pool:
        asked = {"max_tokens": 60, "ignore_eos": True, "temperature": 1.0}
        quiet = [served.chat(**asked, seed=i)[1]["choices"][0]["message"] for i in range(4)]
        answers = [pool.submit(served.chat, **asked, seed=i) for i in range(4)]
        time.sleep(0.2)
        os.kill(served.pid, signal.SIGSTOP)
        time.sleep(2.0)
        os.kill(served.pid, signal.SIGCONT)
        assert [answer.result(60)[1]["choices"][0]["message"] for answer in answers] == quiet
        assert served.request("GET", "/ready")[0] == 200
        assert served.settles()


def test_after_kill_9_the_next_start_serves_as_usual() -> None:
    asked = {"max_tokens": 400, "ignore_eos": True}
    with octavo_serve(*FLAGS) as served:
        usual = served.chat(max_tokens=8)
    with ThreadPoolExecutor(4) as pool:
        with pytest.raises(AssertionError), octavo_serve(*FLAGS) as served:
            streams = [pool.submit(served.chat, stream=True, **asked) for _ in range(4)]
            while not served.metric("vllm:num_requests_running"):
                time.sleep(0.02)
            os.kill(served.pid, signal.SIGKILL)
            raise AssertionError("it is gone")
        for stream in streams:
            assert isinstance(stream.exception(10), (OSError, http.client.HTTPException))
    with octavo_serve(*FLAGS) as served:
        status, answer = served.chat(max_tokens=8)
        assert status == usual[0] == 200
        assert answer["choices"] == usual[1]["choices"]
        assert served.settles()
