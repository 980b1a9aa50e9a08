"""A request whose grammar makes steps wait is named."""

from __future__ import annotations

import threading
import time

from conftest_runtime import VOCAB, collect, make_engine, params, tokens
from test_pipeline import Matcher

from octavo import _engine


class Slow(Matcher):
    def __init__(self, sets: list[list[int]], seen: threading.Event, at: int = 0) -> None:
        super().__init__(sets, at)
        self.seen = seen

    def deep_copy(self) -> Slow:
        return Slow(self.sets, self.seen, self.at)

    def unsafe_compute_mask_ptr(self, pointer: int, size: int) -> None:
        self.seen.wait(0.05)
        super().unsafe_compute_mask_ptr(pointer, size)


def test_who_makes_steps_wait_for_its_mask() -> None:
    engine = make_engine()
    channel, seen = engine.open_channel(), threading.Event()
    grammar = _engine.python_grammar(Slow([[5, 6, 7]] * 30, seen), VOCAB)
    free = engine.submit([8, 9], params(max_tokens=30), channel)
    held = engine.submit([5, 6], params(max_tokens=30, grammar=grammar), channel)
    wanted, shown = {free: "grammar_of_another", held: "grammar"}, {}
    deadline = time.monotonic() + 20
    while shown != wanted and time.monotonic() < deadline:
        shown = {r["id"]: r["reason"] for r in engine.snapshot()["running"]}
    seen.set()
    told = collect(channel, [free, held])
    engine.shutdown()
    assert shown == wanted
    assert set(tokens(told[held])) <= {5, 6, 7}
