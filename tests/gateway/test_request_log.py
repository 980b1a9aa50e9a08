"""One line per finished request, without a word of what was said."""

from __future__ import annotations

import logging
import re
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import run, serving

from octavo_gateway.api.engine import ModelInfo
from octavo_gateway.api.sampling import describe_defaults
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.server.request_log import RequestLog

NAME = "octavo.gateway.requests"
SECRET = "a secret word"


def logged(caplog: pytest.LogCaptureFixture, path: str, **fields: Any) -> str:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("fine answer")))) as client:
            if fields:
                await client.post(path, fields)
            else:
                await client.get(path, headers={"X-Request-Id": "mine"})

    with caplog.at_level(logging.INFO, logger=NAME):
        run(scenario())
    (line,) = [record.getMessage() for record in caplog.records if record.name == NAME]
    return line


@pytest.mark.parametrize("stream", [False, True])
def test_a_generation(caplog: pytest.LogCaptureFixture, stream: bool) -> None:
    message = {"role": "user", "content": SECRET}
    line = logged(caplog, "/v1/chat/completions", messages=[message], stream=stream)
    pattern = (
        r"POST /v1/chat/completions 200 in \d+\.\d{3} s, \d+ prompt tokens \(\d+ cached\), \d+ output tokens, "
        r"finish stop, id 'req"
    )
    assert re.match(pattern, line), line
    assert SECRET not in line and "fine" not in line


def test_refusals_and_other_routes(caplog: pytest.LogCaptureFixture) -> None:
    assert re.fullmatch(r"GET /health 200 in \S+ s, id 'mine'", logged(caplog, "/health"))
    caplog.clear()
    assert logged(caplog, "/v1/completions", model="nobody", prompt=SECRET).startswith(
        "POST /v1/completions 404"
    )
    caplog.clear()
    assert logged(caplog, "/no%0Asuch%20path?q=secret").startswith("GET /no%0Asuch%20path 404 in ")


def test_it_can_be_switched_off(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, logger=NAME):
        RequestLog(enabled=False).finished(None, "200")  # type: ignore[arg-type]
    assert not caplog.records


def test_defaults_in_words() -> None:
    model = ModelInfo("m", 256, {"temperature": 0.2, "top_k": 50})
    words = describe_defaults(model, ApiSettings(("m",), default_sampling={"top_k": 7}))
    assert words.startswith("temperature 0.2 (model), top_p 1, top_k 7 (command line), min_p 0,")
    assert words.endswith("max_tokens 16 in a completion, what the window leaves in a chat")
