"""A request whose grammar makes steps wait is named."""

from __future__ import annotations

import time

from conftest_runtime import VOCAB, collect, make_engine, params, tokens
from test_pipeline import Matcher

from octavo import _engine


class Slow(Matcher):
    def deep_copy(self) -> Slow:
        return Slow(self.sets, self.at)

    def unsafe_compute_mask_ptr(self, pointer: int, size: int) -> None:
        time.sleep(0.05)
        super().unsafe_compute_mask_ptr(pointer, size)


def test_who_makes_steps_wait_for_its_mask() -> None:
    engine = make_engine()
    channel = engine.open_channel()
    grammar = _engine.python_grammar(Slow([[5, 6, 7]] * 30), VOCAB)
    free = engine.submit([8, 9], params(max_tokens=30), channel)
    held = engine.submit([5, 6], params(max_tokens=30, grammar=grammar), channel)
    wanted, shown = {free: "grammar_of_another", held: "grammar"}, {}
    deadline = time.monotonic() + 20
    while shown != wanted and time.monotonic() < deadline:
        shown = {r["id"]: r["reason"] for r in engine.snapshot()["running"]}
    told = collect(channel, [free, held])
    engine.shutdown()
    assert shown == wanted
    assert set(tokens(told[held])) <= {5, 6, 7}
