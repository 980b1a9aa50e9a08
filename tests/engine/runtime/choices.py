"""Reading requests with several choices."""

from __future__ import annotations

import time
from collections.abc import Collection
from dataclasses import dataclass, field

from octavo import _engine


@dataclass
class Answer:
    tokens: list[int] = field(default_factory=list)
    text: str = ""
    logprobs: list[tuple] = field(default_factory=list)
    finish: str | None = None
    last: _engine.Delta | None = None  # the delta with the finish


def gather(
    channel: _engine.Channel,
    requests: dict[int, int],
    *,
    others: Collection[int] = (),
    seconds: float = 30.0,
) -> dict[int, list[Answer]]:
    """The answers to requests, given as id to number of choices, each of which must finish exactly once.

    ``others`` may speak meanwhile and are not listened to.
    """
    out = {i: [Answer() for _ in range(n)] for i, n in requests.items()}
    left = sum(requests.values())
    end = time.monotonic() + seconds
    while left:
        assert time.monotonic() < end, "some choices did not finish"
        channel.wait(100)
        for delta in channel.drain():
            if delta.id in others:
                continue
            answer = out[delta.id][delta.choice]
            assert answer.finish is None, "a choice went on after its finish"
            answer.tokens += delta.token_ids
            answer.text += delta.text
            answer.logprobs += delta.logprobs or []
            if delta.finish is not None:
                answer.finish, answer.last = delta.finish, delta
                left -= 1
    assert all(delta.id in others for delta in channel.drain())
    return out
