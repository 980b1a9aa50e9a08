"""API keys: where they come from, that a reload takes them over, and that no secret and no prompt is ever told."""

from __future__ import annotations

import argparse
import hashlib
import http.client
import logging
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, run, serving
from test_lifecycle import server as process_server
from test_lifecycle import start

from octavo.errors import InvalidArgumentError
from octavo_gateway.server.flags import add_flags, server_settings
from octavo_gateway.server.keys import KeyRing, parse_keys

CANARY = "marmalade-canary"
DIGEST = hashlib.sha256(b"hidden").hexdigest()


def bearer(key: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {key}"}


def test_entries_have_names_and_may_hide_their_key(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# the teams\nred=r1 red=r2\n\n  blue=sha256:{DIGEST.upper()}\n")
    file.chmod(0o600)
    ring = KeyRing(("plain", "other"), "env=e", str(file))
    tenants = {key: ring.tenant_of(key) for key in ("r1", "r2", "hidden", "e", "plain", "other")}
    assert tenants == {
        "r1": "red",
        "r2": "red",
        "hidden": "blue",
        "e": "env",
        "plain": "key#1",
        "other": "key#2",
    }
    for wrong in ("", "R1", "r1 ", "red", "red=r1", DIGEST, f"sha256:{DIGEST}"):
        assert ring.tenant_of(wrong) is None


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("just-a-secret", "line 1: an entry is not NAME=KEY"),
        ("\nna#me=secret", "line 2: an entry is not NAME=KEY"),
        ("name=", "line 1: an entry is not NAME=KEY"),
        ("=secret", "line 1: an entry is not NAME=KEY"),
        ("a=secret\nb=secret", "line 2: a and b have the same key"),
        ("a=sha256:secret", "line 1: sha256: needs 64 hexadecimal digits"),
    ],
)
def test_a_wrong_entry_is_named_by_its_place(text: str, says: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_keys(text, "keys")
    assert f"keys {says}" in str(caught.value) and "secret" not in str(caught.value)


def test_no_source_that_was_named_leaves_the_server_open(tmp_path: Path) -> None:
    empty = tmp_path / "empty"
    empty.write_text("# nobody\n")
    for arguments in ({"named": " # x"}, {"file": str(empty)}, {"file": str(tmp_path / "none")}):
        with pytest.raises(InvalidArgumentError):
            KeyRing(**arguments)


def test_flags_and_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    def settings(*arguments: str) -> Any:
        parser = argparse.ArgumentParser()
        add_flags(parser)
        return server_settings(parser.parse_args(list(arguments)))

    for name in ("OCTAVO_API_KEY", "OCTAVO_API_KEYS"):
        monkeypatch.delenv(name, raising=False)
    assert not settings().keyed
    assert settings("--api-key-file", "f").key_file == "f" and settings("--api-key-file", "f").keyed
    monkeypatch.setenv("OCTAVO_API_KEYS", "a=b")
    assert settings().named_keys == "a=b" and settings().keyed
    monkeypatch.setenv("OCTAVO_API_KEY", "k")
    assert settings().api_keys == ("k",)


def test_every_key_is_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    compared: list[int] = []

    def counted(a: bytes, b: bytes) -> bool:
        compared.append(1)
        return a == b

    ring = KeyRing(("a", "b", "c"))
    monkeypatch.setattr("octavo_gateway.server.keys.hmac.compare_digest", counted)
    for key in ("a", "c", "nobody"):
        compared.clear()
        ring.tenant_of(key)
        assert len(compared) == 3


@pytest.mark.slow
def test_sighup_reads_the_file_again_and_a_broken_one_changes_nothing(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("red=first\n")
    file.chmod(0o600)
    with process_server(key_file=str(file), log_level="info") as (process, port):

        def status(key: str) -> int:
            connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
            connection.request("GET", "/v1/models", headers=bearer(key))
            return connection.getresponse().status

        def becomes(key: str, expected: int) -> None:
            deadline = time.monotonic() + 10
            while status(key) != expected:
                assert time.monotonic() < deadline
                time.sleep(0.02)

        assert (status("first"), status("second")) == (200, 401)
        file.write_text("red=second\n")
        os.kill(process.pid, signal.SIGHUP)
        becomes("second", 200)
        assert status("first") == 401
        file.write_text("second\n")
        os.kill(process.pid, signal.SIGHUP)
        time.sleep(0.3)
        assert (status("first"), status("second")) == (401, 200)
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0
        assert process.stderr is not None
        log = process.stderr.read()
    assert "API keys valid now: 1, of tenants: 1" in log and "stay as they were" in log
    assert "second" not in log and "first" not in log


def test_no_prompt_and_no_key_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    """Refused, failed, crashed or answered: at level info the log has no word of it."""

    def script(prompt: Any) -> Script:
        if b"crash" in bytes(prompt):
            raise RuntimeError(f"a fault that quotes {bytes(prompt).decode()}")
        if b"fault" in bytes(prompt):
            return Script(finish="error", error=("internal", "", f"a fault about {CANARY}"))
        return Script(steps=spoken(CANARY))

    def said(word: str, **fields: Any) -> dict[str, Any]:
        return {**HELLO, "messages": [{"role": "user", "content": f"{word} {CANARY}"}], **fields}

    async def scenario() -> None:
        async with serving(ScriptedEngine(script), server={"api_keys": (CANARY,)}) as client:
            for body, status in [
                (said("fine"), 200),
                (said("fine", stream=True), 200),
                (said("crash"), 500),
                (said("fault"), 500),
                (said("fault", stream=True), 200),
                (said("fine", stop=[CANARY]), 200),
                (said("fine", temperature=CANARY), 400),
                (said("fine", **{CANARY: 1}), 200),
                (said("fine", chat_template_kwargs={"fail": CANARY}), 400),
                (f'{{"messages": "{CANARY}'.encode(), 400),
            ]:
                got, _, _ = await client.post("/v1/chat/completions", body, headers=bearer(CANARY))
                assert got == status, body
            await client.get(f"/v1/models?q={CANARY}", headers=bearer(CANARY))
            status, _, _ = await client.post("/v1/chat/completions", HELLO, headers=bearer("wrong" + CANARY))
            assert status == 401

    with caplog.at_level(logging.INFO):
        run(scenario())
    assert "RuntimeError" in caplog.text and "in script" in caplog.text
    assert CANARY not in caplog.text


def test_other_origins_are_not_let_in() -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("x")))) as client:
            origin = {"Origin": "https://example.org", "Access-Control-Request-Method": "POST"}
            for method, path in (
                ("OPTIONS", "/v1/chat/completions"),
                ("GET", "/v1/models"),
                ("POST", "/v1/chat/completions"),
            ):
                body = {"json": HELLO} if method == "POST" else {}
                async with client.session.request(method, client.base + path, headers=origin, **body) as r:
                    assert (r.status == 405) == (method == "OPTIONS")
                    assert not [name for name in r.headers if name.lower().startswith("access-control")]

    run(scenario())


@pytest.mark.slow
def test_a_key_file_with_a_mistake_ends_the_start(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text("red=one\nsecret\n")
    process = start(key_file=str(file))
    out, err = process.communicate(timeout=20)
    assert process.returncode == 2 and not out
    assert (
        err.startswith("octavo: error: API keys: keys line 2")
        and err.count("\n") == 1
        and "secret" not in err
    )
