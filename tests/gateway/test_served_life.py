"""A server with a model, stopped and ended while it has work."""

from __future__ import annotations

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
