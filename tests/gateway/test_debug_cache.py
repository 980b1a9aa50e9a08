"""The routes below /debug: off unless a flag or key says otherwise, true to the engine, and without text."""

from __future__ import annotations

import argparse
import asyncio
import itertools
import time
from typing import Any

import msgspec
import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, run, serving

from octavo.async_engine import AsyncEngine
from octavo.engine_args import EngineArgs
from octavo.errors import EngineDeadError, InvalidArgumentError, OctavoError
from octavo.loading import load
from octavo_gateway.protocol.cache import CacheSnapshot
from octavo_gateway.server.flags import add_flags, server_settings
from octavo_gateway.server.served_engine import ServedEngine
from octavo_gateway.server.settings import ServerSettings

PATH, AUDIT, DECISIONS = "/debug/cache", "/debug/audit", "/debug/decisions"
SECRET = "my-very-private-words"


async def ended(tasks: list[Any]) -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


def bearer(key: str) -> dict[str, Any]:
    return {"headers": {"Authorization": f"Bearer {key}"}}


@pytest.mark.parametrize(
    ("settings", "answers"),
    [
        ({}, {None: 404, "admin": 404}),
        ({"debug_cache": True}, {None: 200}),
        ({"admin_keys": ("admin",)}, {None: 404, "wrong": 404, "admin": 200}),
        ({"api_keys": ("user",)}, {None: 401, "user": 404, "admin": 401}),
        ({"api_keys": ("user",), "debug_cache": True}, {None: 401, "user": 200}),
        ({"api_keys": ("user",), "admin_keys": ("admin",)}, {None: 401, "user": 404, "admin": 200}),
    ],
)
def test_who_sees_it(settings: dict[str, Any], answers: dict[str | None, int]) -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(), server=settings) as client:
            for (key, expected), path in itertools.product(answers.items(), (PATH, AUDIT, DECISIONS)):
                status, _, body = await client.get(path, **(bearer(key) if key else {}))
                assert status == expected, (settings, key, path)
                if expected == 404:  # as any path that does not exist
                    unknown = (await client.get("/debug/other", **(bearer(key) if key else {})))[2]
                    assert body["error"]["code"] == unknown["error"]["code"] == "not_found"

    run(scenario())


def test_the_flags() -> None:
    def settings(*arguments: str) -> ServerSettings:
        parser = argparse.ArgumentParser()
        add_flags(parser)
        return server_settings(parser.parse_args(list(arguments)))

    assert (settings().admin_keys, settings().debug_cache) == ((), False)
    given = settings("--debug-cache", "--admin-key", "a", "--admin-key", "b")
    assert (given.admin_keys, given.debug_cache) == (("a", "b"), True)
    with pytest.raises(InvalidArgumentError, match="--admin-key must not be empty"):
        settings("--admin-key", "")


def test_an_admin_key_opens_only_what_is_for_operators() -> None:
    async def scenario() -> None:
        keys = {"api_keys": ("user",), "admin_keys": ("admin",)}
        async with serving(ScriptedEngine(), server=keys) as client:
            assert (await client.get("/v1/models", **bearer("admin")))[0] == 401
            assert (await client.post("/v1/chat/completions", HELLO, **bearer("admin")))[0] == 401

    run(scenario())


def test_while_the_model_loads_it_is_503() -> None:
    async def scenario() -> None:
        async with serving(None, server={"debug_cache": True}) as client:
            assert (await client.get(PATH))[0] == 503
            assert (await client.get(AUDIT))[0] == 503
            assert (await client.get(DECISIONS))[0] == 503

    run(scenario())


def test_an_audit_that_does_not_add_up_is_an_error_that_says_so() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine()
        async with serving(engine, server={"debug_cache": True}) as client:
            status, _, body = await client.get(AUDIT)
            assert status == 200
            assert (body["object"], body["total_blocks"], body["steps"]) == ("cache_audit", 64, 3)
            engine.audit_error = OctavoError("block 7 is live and free", code="internal", param="audit")
            status, _, body = await client.get(AUDIT)
            assert status == 500 and body["error"]["message"] == "block 7 is live and free"

    run(scenario())


def test_the_answer_has_the_documented_shape_and_no_text() -> None:
    async def scenario() -> None:
        slow = ScriptedEngine(Script(steps=spoken("fine"), step_seconds=0.2), max_num_seqs=1)
        async with serving(slow, server={"debug_cache": True}) as client:
            tasks = [
                asyncio.ensure_future(
                    client.chat(messages=[{"role": "user", "content": SECRET}], user=SECRET)
                )
                for _ in range(3)
            ]
            await asyncio.sleep(0.1)
            async with client.session.get(client.base + PATH) as r:
                raw = await r.read()
            await ended(tasks)
        snapshot = msgspec.json.decode(raw, type=CacheSnapshot)
        assert [w.reason for w in snapshot.waiting] == ["sequence_limit", "behind"]
        assert len(snapshot.running) == 1 and snapshot.sharing_factor == 2.0
        assert snapshot.prefix_hit_rate == 5 / 9
        assert SECRET.encode() not in raw

    run(scenario())


def test_a_slow_reader_is_named_unless_the_engine_holds_the_request_up() -> None:
    async def scenario() -> None:
        slow = ScriptedEngine(Script(steps=spoken("fine"), step_seconds=0.2))
        async with serving(slow, server={"debug_cache": True}) as client:
            tasks = [asyncio.ensure_future(client.chat()) for _ in range(3)]
            await asyncio.sleep(0.1)
            assert client.state.unread() == {1: 0, 2: 0, 3: 0}
            client.state.unread = lambda: {1: 50, 2: 3}  # type: ignore[method-assign]
            status, _, body = await client.get(PATH)
            assert status == 200
            assert [(r["id"], r["unread"], r["reason"]) for r in body["running"]] == [
                (1, 50, "reader"),
                (2, 3, "on_time"),
                (3, 0, "on_time"),
            ]
            await ended(tasks)

    run(scenario())


def test_a_real_engine_says_why_each_request_waits(smollm2: Any) -> None:
    """Two sequences at most and a long prompt for all: one leads, the others wait or share."""

    async def scenario() -> None:
        arguments = EngineArgs.from_kwargs(
            {"model": str(smollm2), "max_model_len": 512, "max_num_seqs": 2, "threads": 1}
        )
        engine = await asyncio.to_thread(lambda: ServedEngine(arguments))
        engine._engine.model.engine.inject_fault("hold", times=10_000, seconds=0.02)  # time to look
        try:
            async with serving(engine, server={"debug_cache": True}) as client:
                fields = {"max_tokens": 400, "ignore_eos": True}
                tasks = [
                    asyncio.ensure_future(
                        client.chat(messages=[{"role": "user", "content": SECRET * 8}], **fields)
                    )
                    for _ in range(4)
                ]
                deadline = time.monotonic() + 30
                while True:
                    status, _, body = await client.get(PATH)
                    assert status == 200
                    reasons = [w["reason"] for w in body["waiting"]]
                    if len(body["running"]) == 2 and reasons == ["sequence_limit", "behind"]:
                        break
                    assert time.monotonic() < deadline, body
                assert all(0 < w["waited"] < 30 for w in body["waiting"])
                blocks = sum(n for _, n in body["groups"][0]["map"])
                assert (
                    blocks
                    == body["total_blocks"]
                    == sum(body[f"{kind}_blocks"] for kind in ("free", "cached", "live"))
                )
                assert body["sharing_factor"] > 1  # both hold the prompt's blocks
                assert max(holders for holders, _ in body["groups"][0]["map"]) == 2
                assert body["prefix_tokens_saved"] > 0 and 0 < body["prefix_hit_rate"] < 1
                assert (await client.get(AUDIT))[2]["live_blocks"] > 0
                await ended(tasks)
        finally:
            engine.shutdown()

    run(scenario())


def test_a_snapshot_of_an_engine_that_is_gone(smollm2: Any) -> None:
    async def scenario() -> None:
        arguments = EngineArgs.from_kwargs({"model": str(smollm2), "max_model_len": 64, "threads": 1})
        engine = AsyncEngine(await asyncio.to_thread(load, arguments))
        assert (await engine.snapshot())["waiting"] == []
        engine.shutdown()
        with pytest.raises(EngineDeadError):
            await engine.snapshot()

    run(scenario())
