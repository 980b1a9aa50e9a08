"""Keys, queue limit, the phases of the server's life, and the routes that say how it is."""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, MODEL, run, serving

from octavo_gateway.server.dispatch import routes
from octavo_gateway.server.state import Phase

OPEN = {"/health", "/ready", "/ping"}


def engine(**kwargs: Any) -> ScriptedEngine:
    return ScriptedEngine(Script(steps=spoken("fine")), **kwargs)


def test_with_keys_every_route_but_the_probes_needs_one() -> None:
    """Behaviour 93."""

    class Names:
        def __getattr__(self, name: str) -> str:
            return name

    async def scenario() -> None:
        known = [(m, p) for p, methods in routes(Names()).items() for m in methods]  # type: ignore[arg-type]
        assert len(known) >= 10
        probes = [
            *known,
            ("GET", "/invocations"),
            ("POST", "/v1/anything"),
            ("OPTIONS", "/v1/chat/completions"),
        ]
        wrong = [
            {},
            {"Authorization": "Bearer wrong"},
            {"Authorization": "Bearer "},
            {"Authorization": "Basic first"},
            {"Authorization": "first"},
            {"x-api-key": "first"},
            {"Authorization": "Bearer FIRST"},
        ]
        async with serving(engine(), server={"api_keys": ("first", "second")}) as client:
            for method, path in probes:
                for headers in wrong:
                    async with client.session.request(method, client.base + path, headers=headers) as r:
                        assert (r.status == 401) == (path not in OPEN), (method, path, headers)
                        if r.status == 401:
                            error = (await r.json())["error"]
                            assert error["code"] == "invalid_api_key" and set(error) == {
                                "message",
                                "type",
                                "param",
                                "code",
                            }
            for key in ("first", "second"):
                for scheme in ("Bearer", "bearer"):
                    headers = {"Authorization": f"{scheme} {key}"}
                    status, _, _ = await client.post("/v1/chat/completions", HELLO, headers=headers)
                    assert status == 200
            for method, path in known:
                async with client.session.request(method, client.base + path, headers=headers) as r:
                    assert r.status != 401, (method, path)

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "answers"),
    [
        ({}, {None: 200}),
        ({"api_keys": ("a",)}, {None: 401, "a": 200}),
        ({"named_keys": "red=r1 red=r2"}, {"r1": 200, "r2": 200}),
        ({"named_keys": "red=r blue=b"}, {None: 401, "r": 403, "b": 403, "admin": 401}),
        ({"api_keys": ("a", "b"), "admin_keys": ("admin",)}, {None: 401, "a": 403, "admin": 200}),
        ({"api_keys": ("a",), "admin_keys": ("admin",)}, {"a": 200, "admin": 200}),
        ({"api_keys": ("a", "b"), "debug_cache": True}, {None: 401, "a": 200}),
    ],
)
def test_what_counts_for_all_tenants_is_shown_to_none_of_several(
    settings: dict[str, Any], answers: dict[str | None, int]
) -> None:
    async def scenario() -> None:
        async with serving(engine(), server=settings) as client:
            for key, expected in answers.items():
                headers = {"Authorization": f"Bearer {key}"} if key else {}
                status, _, body = await client.get("/metrics", headers=headers)
                assert status == expected, (key, body)
                if status == 403:
                    assert (
                        body["error"]["code"] == "admin_key_required"
                        and "--admin-key" in body["error"]["message"]
                    )

    run(scenario())


def test_a_second_tenant_that_comes_with_a_reload_closes_the_metrics(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("red=r")

    async def scenario() -> None:
        async with serving(engine(), server={"key_file": str(file)}) as client:
            headers = {"Authorization": "Bearer r"}
            for content, expected in (("red=r", 200), ("red=r blue=b", 403), ("red=r red=b", 200)):
                file.write_text(content)
                client.keys.ring.reload()
                assert (await client.get("/metrics", headers=headers))[0] == expected

    run(scenario())


def test_a_full_queue_answers_429_and_loses_no_accepted_request() -> None:
    """Behaviour 90."""

    async def scenario() -> None:
        slow = ScriptedEngine(max_num_seqs=1)
        # The first keeps its place until all have come.
        slow.script = lambda _: Script(spoken("fine"), first_step_seconds=0.0 if slow.submitted else 0.5)
        async with serving(slow, server={"max_concurrent": 1 + 4}) as client:
            answers = await asyncio.gather(*(client.chat() for _ in range(100)))
            statuses = sorted(status for status, _, _ in answers)
            assert statuses == [200] * 5 + [429] * 95
            refusal = next((h, b) for s, h, b in answers if s == 429)
            assert int(refusal[0]["Retry-After"]) >= 1
            assert refusal[1]["error"]["code"] == "rate_limit_exceeded"
            assert client.state.metrics.refused[429] == 95
            assert (await client.chat())[0] == 200

    run(scenario())


def test_a_refused_or_failed_request_gives_its_place_back() -> None:
    async def scenario() -> None:
        async with serving(engine(), server={"max_concurrent": 1}) as client:
            for _ in range(5):
                assert (await client.chat(temperature=-1))[0] == 400
                assert (await client.post("/tokenize", b"{"))[0] == 400
            assert (await client.chat())[0] == 200

    run(scenario())


def test_while_the_model_loads() -> None:
    """Behaviour 108."""

    async def scenario() -> None:
        async with serving(None) as client:
            assert (await client.get("/health"))[0] == 200
            assert (await client.get("/version"))[0] == 200
            for answer in (
                await client.get("/ready"),
                await client.chat(stream=True),
                await client.get("/v1/models"),
                await client.get("/metrics"),
            ):
                status, headers, body = answer
                assert status == 503 and int(headers["Retry-After"]) >= 1
                assert headers["Content-Type"].startswith("application/json")
                assert set(body["error"]) == {"message", "type", "param", "code"}

    run(scenario())


def test_while_the_server_drains() -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            client.state.phase = Phase.DRAINING
            for status, headers, body in (await client.get("/ready"), await client.chat()):
                assert (
                    status == 503
                    and "Retry-After" in headers
                    and body["error"]["code"] == "service_unavailable"
                )
                assert headers.get("Connection") == "close"
            assert (await client.get("/health"))[0] == 200

    run(scenario())


def test_ready_fails_when_the_engine_stands_still_with_work() -> None:
    async def scenario() -> None:
        stuck = ScriptedEngine(Script(first_step_seconds=60))
        async with serving(stuck, server={"stall_seconds": 0.2}) as client:
            assert (await client.get("/ready"))[0] == 200
            task = asyncio.ensure_future(client.chat())
            await asyncio.sleep(0.1)
            assert (await client.get("/ready"))[0] == 200
            await asyncio.sleep(0.3)
            status, _, body = await client.get("/ready")
            assert status == 503 and "has not stepped" in body["error"]["message"]
            assert (await client.get("/health"))[0] == 200
            stuck.last_step = time.monotonic()
            assert (await client.get("/ready"))[0] == 200
            task.cancel()

    run(scenario())


@pytest.mark.slow
def test_ready_while_merely_saturated() -> None:
    """Every place is taken and the queue refuses, but steps go on."""

    async def scenario() -> None:
        busy = ScriptedEngine(Script(steps=[([120], "x")] * 40, step_seconds=0.02), max_num_seqs=1)
        async with serving(busy, server={"stall_seconds": 0.2, "max_concurrent": 3}) as client:
            tasks = [asyncio.ensure_future(client.chat()) for _ in range(3)]
            for _ in range(12):
                await asyncio.sleep(0.05)
                assert (await client.get("/ready"))[0] == 200
            assert (await client.chat())[0] == 429
            for task in tasks:
                task.cancel()

    run(scenario())


def test_models() -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            status, _, listed = await client.get("/v1/models")
            assert status == 200 and listed["object"] == "list"
            assert [m["id"] for m in listed["data"]] == [MODEL, "alias/with-slash"]
            for name in (MODEL, "alias/with-slash"):
                status, _, card = await client.get(f"/v1/models/{name}")
                assert status == 200
                assert (card["id"], card["max_model_len"], card["object"]) == (name, 256, "model")
                assert (await client.chat(model=name))[0] == 200

    run(scenario())


def test_head_requests_and_ping() -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            async with client.session.head(client.base + "/health") as r:
                assert r.status == 200
            assert (await client.get("/ping"))[0] == 200
            assert (await client.get("/version"))[2]["version"]

    run(scenario())


@pytest.mark.parametrize(
    ("body", "ids"),
    [
        ({"prompt": "ab"}, [97, 98]),
        ({"prompt": ""}, []),
        ({"messages": [{"role": "user", "content": "a"}]}, list(b"<user>a<assistant>")),
        (
            {"messages": [{"role": "user", "content": "a"}], "add_generation_prompt": False},
            list(b"<user>a"),
        ),
    ],
)
def test_tokenize_and_back(body: dict[str, Any], ids: list[int]) -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            status, _, answer = await client.post("/tokenize", {"model": MODEL, **body})
            assert status == 200
            assert (answer["tokens"], answer["count"], answer["max_model_len"]) == (ids, len(ids), 256)
            status, _, back = await client.post("/detokenize", {"tokens": ids})
            assert status == 200 and back == {"prompt": bytes(ids).decode()}

    run(scenario())


@pytest.mark.parametrize(
    ("path", "body", "param"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/detokenize", {"tokens": [300]}, "tokens"),
        ("/detokenize", {"tokens": [-1]}, "tokens"),
        ("/detokenize", {"tokens": [True]}, "tokens[0]"),
        ("/detokenize", {}, "tokens"),
    ],
)
def test_tokenize_refusals(path: str, body: dict[str, Any], param: str) -> None:
    async def scenario() -> None:
        async with serving(engine()) as client:
            status, _, answer = await client.post(path, body)
            assert status == 400 and answer["error"]["param"] == param

    run(scenario())


def test_a_tenant_has_its_own_limit() -> None:
    async def scenario() -> None:
        slow = ScriptedEngine(Script(steps=spoken("fine"), first_step_seconds=0.3))
        limits = {"named_keys": "red=r1 red=r2 blue=b", "max_tenant_requests": 3}
        async with serving(slow, server=limits) as client:

            async def ask(key: str, path: str = "/v1/chat/completions", **fields: Any) -> int:
                body = {**(HELLO if "chat" in path else {"prompt": ["a"] * 4}), **fields}
                headers = {"Authorization": f"Bearer {key}"}
                status, told, _ = await client.post(path, body, headers=headers)
                assert (status == 429) == ("Retry-After" in told)
                return status

            statuses = await asyncio.gather(
                *(ask(key) for key in ("r1", "r2") * 5), *(ask("b") for _ in range(3))
            )
            assert sorted(statuses[:10]) == [200] * 3 + [429] * 7 and statuses[10:] == [200] * 3
            assert await ask("r1", "/v1/completions") == 429  # each of its prompts is a request
            assert await ask("r1") == 200
            assert client.state.accepted == 0

    run(scenario())
