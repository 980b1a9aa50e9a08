"""A device that is gone takes every request with it, at once, and no later one is kept waiting."""

from __future__ import annotations

from choices import gather
from conftest_runtime import make_engine, params


def test_requests_end_with_the_reason_when_the_device_is_lost() -> None:
    engine = make_engine()
    assert engine.stats()["device_lost"] == ""
    channel = engine.open_channel()
    engine.pause()
    engine.inject_fault("device_lost")
    requests = [engine.submit([5, 6 + i], params(max_tokens=8), channel) for i in range(3)]
    engine.resume()
    answers = gather(channel, dict.fromkeys(requests, 1))
    late = engine.submit([9], params(max_tokens=8), channel)
    answers |= gather(channel, {late: 1})
    for request in [*requests, late]:
        (answer,) = answers[request]
        assert answer.finish == "error" and answer.tokens == []
    stats = engine.stats()
    assert "loss of the device" in stats["device_lost"]
    assert (stats["failed_steps"], stats["running"], stats["live_blocks"]) == (1, 0, 0)
    engine.audit()
    engine.shutdown()
