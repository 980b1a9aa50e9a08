"""The body of a request."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from octavo_bench.client.records import Record, Shot
from octavo_bench.client.target import Target

_encode = msgspec.json.Encoder().encode


def request_body(target: Target, shot: Shot, history: Sequence[tuple[Shot, Record]] = ()) -> bytes:
    """The body of a streamed request; ``history`` holds the turns before this one with their answers."""
    body: dict[str, Any] = {
        "model": target.model,
        "max_tokens": shot.max_tokens,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    if target.chat:
        body["messages"] = [
            *(
                {"role": role, "content": text}
                for past, answer in history
                for role, text in (("user", past.prompt), ("assistant", answer.text))
            ),
            {"role": "user", "content": shot.prompt},
        ]
    elif isinstance(shot.prompt, str):
        body["prompt"] = "".join([*(f"{past.prompt}{answer.text}" for past, answer in history), shot.prompt])
    else:
        body["prompt"] = list(shot.prompt)
    return _encode({**body, **target.body, **shot.extra})
