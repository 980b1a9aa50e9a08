"""What has broken servers elsewhere is a 400 of this one, with an engine behind it, and leaves no trace."""

from __future__ import annotations

import http.client
import itertools
import json
import threading
import time
from collections.abc import Iterator
from typing import Any

import pytest
from request_fuzzer import Sender, golden
from served import FRANCE, Served

VOCAB = 49152
CHAT, PLAIN = "/v1/chat/completions", "/v1/completions"
PROMPTS: dict[str, dict[str, Any]] = {CHAT: {"messages": FRANCE}, PLAIN: {"prompt": "One"}}

VALUES: list[tuple[str, Any]] = [
    *(("temperature", v) for v in (1e6, -1, "1", [])),
    *(("top_p", v) for v in (-1, 1.01)),
    *(("repetition_penalty", v) for v in (0, -1, 1e9)),
    *(("top_k", v) for v in (-2, 2**64)),
    *(("logit_bias", v) for v in ({"999999": 5}, {str(VOCAB): 1}, {"foo": 1}, {"-1": 1}, {"1.5": 1})),
    *(("logit_bias", {"1": v}) for v in (101, -101, "5", None, [1])),
    *(("stop_token_ids", v) for v in ([VOCAB], [-1], [VOCAB, -1], [1, VOCAB], [2**31], [2**64], [True])),
    *(("allowed_token_ids", v) for v in ([VOCAB], [-1], [])),
]  # fmt: skip
IDS: list[Any] = [
    *(
        [999999],
        [VOCAB],
        [-1],
        [2**31],
        [2**32],
        [2**63],
        [2**64],
        [True],
        [1.5],
        [1, None],
        [1, [1]],
        [1, "a"],
    ),
    *([[], [1]], [[1], []], [[1], [VOCAB]], [[1], [-1]], [[1], [True]], [[[1]]]),
    *("", [], [""], [[]], ["a", ""], True, 1, {"a": 1}),
]
NUMBERS = (
    *(
        "temperature",
        "top_p",
        "top_k",
        "min_p",
        "repetition_penalty",
        "presence_penalty",
        "frequency_penalty",
    ),
    *("max_tokens", "min_tokens", "seed", "n", "timeout", "prompt_logprobs", "priority"),
)
NOT_FINITE = ("NaN", "Infinity", "-Infinity", "1e400", "-1e400")
NOT_JSON = [
    *(
        b'{"prompt":"\xc4\xe3"}',
        b'{"\xc4\xe3":1,"prompt":"a"}',
        b'{"prompt":"a\x00b"}',
        b'{"prompt":"a"}\x00',
    ),
    *(b'\xef\xbb\xbf{"prompt":"a"}', '{"prompt":"a"}'.encode("utf-16"), '{"prompt":"a"}'.encode("utf-32-le")),
    *(b'{"prompt":"\\ud800"}', b'{"prompt":["a","\\udfff"]}', b'{"prompt":"a","stop":"\\ud800"}'),
    *(b'{"prompt":"a","logit_bias":{"\\ud800":1}}', b'{"prompt":"a","bad_words":["\\ud800"]}'),
]


def bodies() -> Iterator[tuple[str, bytes, str | None]]:
    """Route, body, and the field that the refusal names; None where any will do."""
    for path, prompt in PROMPTS.items():
        for name, value in VALUES:
            yield path, json.dumps({**prompt, "min_tokens": 1, name: value}).encode(), name
        for name, number in itertools.product(NUMBERS, NOT_FINITE):
            yield path, f'{json.dumps(prompt)[:-1]},"{name}":{number}}}'.encode(), name
    for ids in IDS:
        yield PLAIN, json.dumps({"prompt": ids}).encode(), "prompt"
    yield CHAT, b'{"messages":[]}', "messages"
    for body in NOT_JSON:
        yield PLAIN, body, None


def test_each_is_refused_by_name_and_no_bit_changes_beside_it_or_after_it(tiny: Served) -> None:
    """Behaviours 24, 28, 29, 30, 31, 32 and 34: more than 200 of them."""
    sender, beside, over = Sender(tiny.port), Sender(tiny.port), threading.Event()
    first, differed = golden(sender), []

    def go_on() -> None:
        while not over.is_set():
            if golden(beside) != first:
                differed.append(True)

    neighbour = threading.Thread(target=go_on)
    neighbour.start()
    wrong, count = [], 0
    try:
        for path, body, name in bodies():
            status, answer = sender.send(path, body)
            error = json.loads(answer).get("error", {})
            named = name is None or str(error.get("param")).split("[")[0].split(".")[0] == name
            if status != 400 or not named or len(answer) > 1200:
                wrong.append((path, body, status, answer[:200]))
            count += 1
    finally:
        over.set()
        neighbour.join()
    assert not wrong and count > 200
    assert not differed and golden(sender) == first
    assert tiny.settles()


def part(i: int) -> dict[str, Any]:
    return {"type": "input_text" * 5, "text": i, "extra": "x" * 50}


@pytest.mark.unsanitized("measures time")
@pytest.mark.parametrize(
    "fields",
    [
        {"messages": [{"role": "wizard" * 5, "content": i} for i in range(50)]},
        {"messages": [{"role": "user", "content": [part(i) for i in range(50)]}]},
        {"messages": FRANCE, "tools": [{"type": "function", "function": {"name": i}} for i in range(50)]},
        {"messages": FRANCE, "tools": [{"type": "mcp" * 20, "x": i} for i in range(50)]},
        {"messages": FRANCE, "stop_token_ids": [f"id {i}" for i in range(50)]},
        {"messages": FRANCE, "structured_outputs": {"regex": "(" * 8000}},
        {"messages": FRANCE, "structured_outputs": {"grammar": "start: " + "unknown_rule " * 1000}},
        {"messages": FRANCE, "structured_outputs": {"json": {"anyOf": [{"type": "odd" * 20}] * 100}}},
        {"messages": FRANCE, "structured_outputs": {"json": {"$ref": "#/$defs/" + "n" * 8000}}},
    ],
    ids=lambda fields: str(fields)[-60:],
)
def test_a_body_full_of_mistakes_is_answered_shortly(tiny: Served, fields: dict[str, Any]) -> None:
    """Behaviour 57: fifty of them in a few KB; the first is told, in 4 KB and 50 ms at most."""
    body, quickest = json.dumps(fields), 1e9
    for _ in range(5):
        connection = http.client.HTTPConnection("127.0.0.1", tiny.port, timeout=30)
        start = time.perf_counter()
        connection.request("POST", CHAT, body)
        response = connection.getresponse()
        answer = response.read()
        quickest = min(quickest, time.perf_counter() - start)
        connection.close()
        assert response.status == 400 and len(answer) < 4096, answer[:300]
        assert len(json.loads(answer)["error"]["message"]) <= 1000
    assert quickest < 0.05
