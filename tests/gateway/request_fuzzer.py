"""Requests made from the server's own schema: valid, nearly valid, absurd. The same seed gives the same requests.

    python tests/gateway/request_fuzzer.py [REQUESTS] [SEED]

starts a server with a tiny model and sends it that many (20,000 by default).
"""

from __future__ import annotations

import http.client
import json
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

ROUTES = ("/v1/chat/completions", "/v1/completions", "/tokenize", "/detokenize")
LONGEST_SECONDS = 30.0
_WORDS = ("Hi", "é", "🌍", "<|im_end|>", "\n", " ", "a\u0000b", "{{ x }}", "\u202e", "word " * 30)
_ODD = (
    *(None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63), 2**64, 10**30, 0.5, -0.0, 1e-320, 1e308, 1.0),
    *(
        "",
        "x",
        "\ufeff",
        "0",
        "null",
        "y" * 5000,
        [],
        {},
        [None],
        [[]],
        {"": None},
        [[[[[[[[]]]]]]]],
        {"type": "object"},
    ),
)
_BROKEN = (
    *(b"", b"{", b"[]", b"null", b"1", b'"x"', b"\xff\xfe", b'{"a":NaN}', b'{"prompt":"\\ud800"}', b"{}" * 3),
    *(
        b'{"prompt":1e999}',
        b"[" * 5000,
        b'{"a":' * 5000,
        b'{"prompt":"\xc4\xe3"}',
        b"\xef\xbb\xbf{}",
        b'{"a":1,}',
    ),
)


class Maker:
    """Draws bodies for the routes of one document."""

    def __init__(self, document: dict[str, Any], seed: int) -> None:
        self._draw = random.Random(seed)
        self._schemas: dict[str, Any] = document["components"]["schemas"]
        self._bodies = {
            path: document["paths"][path]["post"]["requestBody"]["content"]["application/json"]["schema"]
            for path in ROUTES
        }

    def requests(self, count: int) -> Iterator[tuple[str, bytes]]:
        for _ in range(count):
            path = self._draw.choice(ROUTES)
            yield path, self._body(path)

    def _body(self, path: str) -> bytes:
        kind = self._draw.random()
        if kind < 0.05:
            return self._draw.choice(_BROKEN)
        body = self._value(self._bodies[path], 0)
        if kind > 0.4:
            for _ in range(self._draw.choice((1, 1, 1, 2, 5))):
                body = self._spoil(body)
        if isinstance(body, dict):
            self._keep_short(path, body)
        text = json.dumps(body)
        if kind > 0.97:
            at = self._draw.randrange(len(text) + 1)
            text = text[:at] + self._draw.choice(("", "}", '"', ",", "\\", "NaN")) + text[at + 1 :]
        return text.encode()

    def _keep_short(self, path: str, body: dict[str, Any]) -> None:
        """Most answers need only a token or two; some ask for what they like."""
        if "completions" in path and self._draw.random() < 0.95:
            for name in ("max_tokens", "max_completion_tokens"):
                if isinstance(body.get(name), int) and body[name] > 2:
                    body[name] = self._draw.choice((1, 2))
            body.setdefault("max_tokens", self._draw.choice((1, 2)))
            if isinstance(body.get("min_tokens"), int) and self._draw.random() < 0.8:
                body["min_tokens"] = 0

    def _value(self, schema: dict[str, Any], depth: int) -> Any:
        draw = self._draw
        if "$ref" in schema:
            return self._value(self._schemas[schema["$ref"].rsplit("/", 1)[1]], depth + 1)
        if "enum" in schema:
            return draw.choice(schema["enum"])
        if "const" in schema:
            return schema["const"]
        if "properties" in schema:
            return self._object(self._one_branch(schema), depth)
        if "anyOf" in schema and schema.get("type") != "integer":
            return self._value(draw.choice(schema["anyOf"]), depth)
        kind = schema.get("type")
        if kind == "integer":
            return self._integer(schema)
        if kind == "number":
            low, high = schema.get("minimum", schema.get("exclusiveMinimum", -2)), schema.get("maximum", 2)
            return draw.choice((low, high, draw.uniform(low, high)))
        if kind == "string":
            return "".join(draw.choices(_WORDS, k=draw.choice((1, 1, 2, 5)))) or "x"
        if kind == "null":
            return None
        if kind == "boolean":
            return draw.random() < 0.5
        if kind == "array":
            least, most = schema.get("minItems", 0), min(4, schema.get("maxItems", 4))
            items = schema.get("items", {})
            return [self._value(items, depth + 1) for _ in range(draw.randint(min(least, most), most))]
        if kind == "object":
            inner = schema.get("additionalProperties") or {}
            keys = [str(draw.randrange(50)) for _ in range(draw.randrange(4))]
            return {key: self._value(inner, depth + 1) for key in keys}
        return draw.choice(_ODD)

    def _one_branch(self, schema: dict[str, Any]) -> dict[str, Any]:
        """One of the alternatives that an object has, worked into its properties."""
        branches = schema.get("oneOf") or schema.get("anyOf")
        if not branches:
            return schema
        branch = self._draw.choice(branches)
        properties = dict(schema["properties"])
        for name, narrower in branch["properties"].items():
            properties[name] = _narrowed(properties[name], narrower)
        return {
            "properties": properties,
            "required": [*schema.get("required", ()), *branch.get("required", ())],
        }

    def _object(self, schema: dict[str, Any], depth: int) -> dict[str, Any]:
        share = 0.15 if len(schema["properties"]) > 10 else 0.5
        required = schema.get("required", ())
        return {
            name: self._value(inner, depth + 1)
            for name, inner in schema["properties"].items()
            if name in required or (depth < 6 and self._draw.random() < share)
        }

    def _integer(self, schema: dict[str, Any]) -> int:
        low, high = schema.get("minimum", -3), schema.get("maximum", 2**31)
        return int(self._draw.choice((low, high, self._draw.randint(low, min(high, low + 40)))))

    def _spoil(self, value: Any) -> Any:
        """The value with something in it exchanged, added, or taken away."""
        draw = self._draw
        if isinstance(value, dict) and value and draw.random() < 0.85:
            key = draw.choice(list(value))
            roll = draw.random()
            if roll < 0.1:
                return {k: v for k, v in value.items() if k != key}
            if roll < 0.2:
                return {
                    **value,
                    draw.choice(("functions", "guided_json", "zzz", key + " ")): draw.choice(_ODD),
                }
            return {**value, key: self._spoil(value[key])}
        if isinstance(value, list) and value and draw.random() < 0.6:
            at = draw.randrange(len(value))
            return [*value[:at], self._spoil(value[at]), *value[at + 1 :]]
        if isinstance(value, (int, float)) and draw.random() < 0.5:
            return draw.choice((-value, value + 1, value - 1, value * 1000, str(value), [value]))
        return draw.choice(_ODD)


def _narrowed(schema: dict[str, Any], narrower: dict[str, Any]) -> dict[str, Any]:
    types = narrower.get("type")
    if types is None or "anyOf" not in schema:
        return narrower
    return {"anyOf": [inner for inner in schema["anyOf"] if inner.get("type") in types]}


@dataclass
class Outcome:
    statuses: Counter[int] = field(default_factory=Counter)
    problems: list[str] = field(default_factory=list)
    slowest: float = 0.0


class Sender:
    """One connection that is kept alive, as clients do, and opened anew where the server closed it."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._connection: http.client.HTTPConnection | None = None

    def send(self, path: str, body: bytes, tries: int = 2) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=LONGEST_SECONDS)
        try:
            self._connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = self._connection.getresponse()
            return response.status, response.read()
        except (ConnectionError, http.client.BadStatusLine):
            self.close()
            if tries == 1:
                raise
            return self.send(path, body, tries - 1)

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def golden(sender: Sender) -> Any:
    """A request whose answer must be the same bits whatever came before."""
    body = {
        "prompt": "One two three",
        "max_tokens": 6,
        "logprobs": 3,
        "echo": True,
        "seed": 5,
        "temperature": 0.8,
    }
    status, answer = sender.send("/v1/completions", json.dumps(body).encode())
    return status, json.loads(answer)["choices"]


def fuzz(port: int, document: dict[str, Any], count: int, seed: int, every: int = 100) -> Outcome:
    """Sends `count` requests one after the other, a golden one after each `every` of them."""
    sender, outcome = Sender(port), Outcome()
    first = golden(sender)
    for i, (path, body) in enumerate(Maker(document, seed).requests(count)):
        started = time.monotonic()
        try:
            status, answer = sender.send(path, body)
        except (OSError, http.client.HTTPException) as e:
            outcome.problems.append(f"request {i} {path} {body[:300]!r}: {type(e).__name__} {e}")
            sender.close()
            continue
        outcome.slowest = max(outcome.slowest, time.monotonic() - started)
        outcome.statuses[status] += 1
        problem = complaint(status, answer)
        if problem:
            outcome.problems.append(f"request {i} {path} {body[:300]!r}: {problem}")
        if i % every == every - 1 and golden(sender) != first:
            outcome.problems.append(f"after request {i} the golden request was answered differently")
    sender.close()
    return outcome


def complaint(status: int, answer: bytes) -> str | None:
    """What is wrong with an answer, if anything."""
    if b'"code":"deadline_exceeded"' in answer and status in (200, 504):
        return None  # the request gave itself no more time
    if status >= 500 or status not in (200, 400, 404, 413):
        return f"status {status} {answer[:300]!r}"
    if status == 200:
        return "an error inside a stream" if b'data: {"error"' in answer else None
    error = json.loads(answer)["error"]
    if set(error) != {"message", "type", "param", "code"} or len(answer) > 4096:
        return f"malformed error {answer[:300]!r}"
    return None


def _main(count: int, seed: int) -> int:
    import tempfile
    from pathlib import Path

    sys.path.insert(0, str(Path(__file__).parents[1] / "reference"))
    from served import octavo_serve
    from tiny_model import make

    from octavo.models import hub

    with tempfile.TemporaryDirectory() as folder:
        model = make(hub.resolve("smollm2"), Path(folder))
        with octavo_serve(
            str(model), "--max-model-len", "256", "--threads", "1", "--log-level", "error"
        ) as server:
            _, document = server.request("GET", "/openapi.json")
            outcome = fuzz(server.port, document, count, seed)
            settled = server.settles()
    print(f"{count} requests, seed {seed}: {dict(outcome.statuses)}, slowest {outcome.slowest:.2f} s")
    print(*outcome.problems[:20], sep="\n")
    return 1 if outcome.problems or not settled else 0


if __name__ == "__main__":
    sys.exit(
        _main(int(sys.argv[1]) if len(sys.argv) > 1 else 20000, int(sys.argv[2]) if len(sys.argv) > 2 else 1)
    )
