"""What is asked: every kind of request whose answer is decided by its body, and bodies that no server should take."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

CHAT, COMPLETIONS = "/v1/chat/completions", "/v1/completions"
# Ids that are plain text in the vocabularies at hand.
FIRST_ID, LAST_ID = 300, 9000
_THINGS = ("rivers", "clocks", "bridges", "spices", "birds", "maps", "glaciers", "looms", "comets", "stoves")
_RULES = (
    "You are a careful assistant. "
    + "Answer in short sentences, name no sources and keep to the point. " * 12
)
_SCHEMA = {
    "type": "object",
    "properties": {
        "name": {"type": "string", "maxLength": 24},
        "count": {"type": "integer", "minimum": 0, "maximum": 99},
        "tags": {"type": "array", "items": {"enum": ["old", "new", "odd"]}, "minItems": 1, "maxItems": 3},
    },
    "required": ["name", "count", "tags"],
    "additionalProperties": False,
}


@dataclass(frozen=True, slots=True)
class Question:
    path: str
    body: dict[str, Any]
    streamable: bool = True

    def encode(self, **fields: Any) -> bytes:
        return msgspec.json.encode({**self.body, "return_token_ids": True, **fields})


@dataclass(frozen=True, slots=True)
class Absurd:
    """What must be refused, and how."""

    name: str
    status: int
    body: bytes
    path: str = CHAT
    method: str = "POST"
    headers: tuple[tuple[str, str], ...] = ()
    keyed: bool = True


def _talk(draw: random.Random, system: str | None = None) -> list[dict[str, str]]:
    ask = f"Tell me {draw.randrange(2, 99)} things about {draw.choice(_THINGS)} and {draw.choice(_THINGS)}."
    said = [{"role": "user", "content": ask}]
    return [{"role": "system", "content": system}, *said] if system else said


def _ids(draw: random.Random, least: int, most: int) -> list[int]:
    return [draw.randrange(FIRST_ID, LAST_ID) for _ in range(draw.randint(least, most))]


def _seeded(draw: random.Random, **fields: Any) -> dict[str, Any]:
    return {"seed": draw.randrange(2**31), "temperature": draw.choice((0.7, 1.0, 1.3)), **fields}


def _greedy(draw: random.Random) -> Question:
    body = {"messages": _talk(draw), "temperature": 0, "max_tokens": draw.randint(8, 48)}
    return Question(CHAT, body)


def _shared(draw: random.Random) -> Question:
    body = {"messages": _talk(draw, _RULES), **_seeded(draw), "max_tokens": draw.randint(4, 32)}
    return Question(CHAT, body)


def _scored(draw: random.Random) -> Question:
    fields = _seeded(draw, top_p=0.9, logprobs=True, top_logprobs=draw.randrange(6))
    return Question(CHAT, {"messages": _talk(draw), **fields, "max_tokens": draw.randint(4, 40)})


def _long_prompt(draw: random.Random) -> Question:
    body = {
        "prompt": _ids(draw, 200, 600),
        "temperature": 0,
        "logprobs": 2,
        "max_tokens": draw.randint(2, 12),
    }
    return Question(COMPLETIONS, body)


def _long_answer(draw: random.Random) -> Question:
    fields = _seeded(draw, ignore_eos=True, logit_bias={str(draw.randrange(FIRST_ID, LAST_ID)): 2})
    return Question(COMPLETIONS, {"prompt": _ids(draw, 4, 30), **fields, "max_tokens": draw.randint(96, 160)})


def _choices(draw: random.Random) -> Question:
    fields = _seeded(draw, n=draw.randint(2, 3), top_k=draw.choice((0, 20)))
    return Question(CHAT, {"messages": _talk(draw), **fields, "max_tokens": draw.randint(8, 32)})


def _stopped(draw: random.Random) -> Question:
    fields = _seeded(draw, stop=draw.sample([".", ",", " the", "\n", "of", "ing"], 3), min_tokens=4)
    return Question(COMPLETIONS, {"prompt": "It is said that", **fields, "max_tokens": 48})


def _penalized(draw: random.Random) -> Question:
    fields = _seeded(draw, presence_penalty=0.5, frequency_penalty=0.4, repetition_penalty=1.2, min_p=0.02)
    return Question(CHAT, {"messages": _talk(draw), **fields, "max_tokens": draw.randint(16, 64)})


def _structured(draw: random.Random) -> Question:
    form = {"type": "json_schema", "json_schema": {"name": "thing", "schema": _SCHEMA}}
    body = {"messages": _talk(draw), **_seeded(draw), "response_format": form, "max_tokens": 80}
    return Question(CHAT, body)


def _echoed(draw: random.Random) -> Question:
    body = {"prompt": _ids(draw, 20, 120), "echo": True, "logprobs": 1, "temperature": 0, "max_tokens": 4}
    return Question(COMPLETIONS, body, streamable=False)


_KINDS: tuple[Callable[[random.Random], Question], ...] = (
    _greedy, _long_answer, _scored, _shared, _long_answer, _choices, _long_prompt, _penalized, _stopped,
    _shared, _structured, _echoed,
)  # fmt: skip

KINDS = len(_KINDS)


def questions(count: int, seed: int) -> list[Question]:
    """``count`` questions, the kinds in turn; the same seed gives the same ones."""
    draw = random.Random(seed)
    return [_KINDS[i % len(_KINDS)](draw) for i in range(count)]


def absurdities(window: int) -> Sequence[Absurd]:
    """Requests that are refused each time, whatever the server is doing."""

    def chat(name: str, status: int = 400, **fields: Any) -> Absurd:
        body = {"messages": [{"role": "user", "content": "Hi"}], **fields}
        return Absurd(name, status, msgspec.json.encode(body))

    return (
        Absurd("no JSON", 400, b'{"messages": [{'),
        Absurd("empty body", 400, b""),
        Absurd("deep nesting", 400, b'{"a":' * 4000),
        Absurd("not UTF-8", 400, b'{"prompt": "\xff\xfe"}', COMPLETIONS),
        Absurd("gzip", 415, b"\x1f\x8b junk", headers=(("Content-Encoding", "gzip"),)),
        Absurd("no such route", 404, b"{}", "/v1/nothing"),
        Absurd("wrong method", 405, b"", CHAT, "PUT"),
        Absurd("no key", 401, b"{}", keyed=False),
        Absurd("hidden route", 404, b"", "/debug/cache", "GET"),
        Absurd("prompt beyond the window", 400, msgspec.json.encode({"prompt": [500] * (window + 1)}), COMPLETIONS),
        Absurd("id out of vocabulary", 400, msgspec.json.encode({"prompt": [2**31 - 1]}), COMPLETIONS),
        Absurd("boolean ids", 400, b'{"prompt": [true, false]}', COMPLETIONS),
        Absurd("infinite", 400, b'{"prompt": "x", "temperature": 1e999}', COMPLETIONS),
        Absurd("half a million stops", 400, msgspec.json.encode({"prompt": "x", "stop": ["x"] * 500_000}), COMPLETIONS),
        chat("no messages", messages=[]),
        chat("temperature below zero", temperature=-1),
        chat("a million choices", n=10**6),
        chat("no such model", 404, model="nobody"),
        chat("a schema that leads to itself",
             structured_outputs={"json": {"$ref": "#/$defs/n", "$defs": {"n": {"$ref": "#/$defs/n"}}}}),
        chat("no such parameter value", tool_choice="required"),
    )  # fmt: skip
