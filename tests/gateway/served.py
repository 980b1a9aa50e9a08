"""`octavo serve` in a process of its own, and what a test asks of it."""

from __future__ import annotations

import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

FRANCE = [{"role": "user", "content": "What is the capital of France?"}]
GREEDY: dict[str, Any] = {"temperature": 0, "max_tokens": 24}
BLOCKS, BLOCK = 96, 16


@dataclass
class Served:
    port: int
    pid: int
    model: str

    @property
    def client(self) -> Any:
        import openai

        return openai.OpenAI(base_url=f"http://127.0.0.1:{self.port}/v1", api_key="k", max_retries=0)

    def request(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=240)
        connection.request(method, path, None if body is None else json.dumps(body))
        response = connection.getresponse()
        raw = response.read()
        connection.close()
        return response.status, json.loads(raw) if "json" in response.headers[
            "Content-Type"
        ] else raw.decode()

    def chat(self, **fields: Any) -> tuple[int, Any]:
        return self.request("POST", "/v1/chat/completions", {"messages": FRANCE, **GREEDY, **fields})

    def complete(self, **fields: Any) -> tuple[int, Any]:
        return self.request("POST", "/v1/completions", {"prompt": "The capital of", **GREEDY, **fields})

    def stream(self, **fields: Any) -> list[dict[str, Any]]:
        _, text = self.chat(stream=True, **fields)
        lines = [line for line in text.split("\n") if line.startswith("data:")]
        assert lines[-1] == "data: [DONE]"
        return [json.loads(line.removeprefix("data: ")) for line in lines[:-1]]

    def metric(self, name: str) -> float:
        _, text = self.request("GET", "/metrics")
        samples = [s for f in text_string_to_metric_families(text) for s in f.samples if s.name == name]
        return sum(s.value for s in samples)

    def settles(self, seconds: float = 2.0) -> bool:
        """Whether nothing runs, waits or holds a block soon."""
        deadline = time.monotonic() + seconds
        names = ("vllm:num_requests_running", "vllm:num_requests_waiting", "octavo:kv_blocks_live")
        while any(self.metric(name) for name in names):
            if time.monotonic() > deadline:
                return False
            time.sleep(0.02)
        return True


@contextmanager
def octavo_serve(*arguments: str) -> Iterator[Served]:
    """A server with these arguments on a free port; it must end with status 0 on SIGTERM."""
    process = subprocess.Popen(
        [
            sys.executable,
            "-c",
            "import sys; from octavo.cli.main import main; sys.exit(main())",
            "serve",
            *("--port", "0", *arguments),
        ],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        found = re.match(r"(\S+) answers at http://127\.0\.0\.1:(\d+)/v1", process.stdout.readline())
        assert found, "the server did not start"
        yield Served(int(found[2]), process.pid, found[1])
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
    finally:
        process.kill()
        process.communicate()


def text_of(chunks: list[dict[str, Any]]) -> str:
    return "".join(c["choices"][0]["delta"].get("content") or "" for c in chunks if c["choices"])
