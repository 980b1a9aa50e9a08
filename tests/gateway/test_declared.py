"""Prompts that an operator declares shared: found on token ids, cached for every tenant, and nothing beyond them."""

from __future__ import annotations

import argparse
import asyncio
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from scripted import Script, ScriptedEngine, spoken
from serving import HELLO, run, serving

from octavo.engine_args import EngineArgs
from octavo.errors import InvalidArgumentError
from octavo_gateway.api.settings import ApiSettings
from octavo_gateway.api.shared_prompts import SharedPrompts
from octavo_gateway.protocol.errors import ApiError
from octavo_gateway.server.flags import add_flags, api_settings
from octavo_gateway.server.served_engine import ServedEngine

IDS = st.lists(st.integers(0, 2), max_size=12)
SYSTEM = {"role": "system", "content": "You are the librarian of a very large house of books. " * 6}
KEYS = {"named_keys": "red=r blue=b"}


@given(IDS, st.lists(IDS, max_size=6))
def test_the_longest_beginning_that_is_declared(ids: list[int], declared: list[list[int]]) -> None:
    longest = max(
        (n for other in declared for n in range(len(ids) + 1) if ids[:n] == other[:n] and n <= len(other)),
        default=0,
    )
    assert (
        SharedPrompts(declared).common_with(ids) == SharedPrompts(declared).common_with(tuple(ids)) == longest
    )


def settings_of(tmp_path: Path, file: Any) -> ApiSettings:
    path = tmp_path / "prompts.json"
    path.write_text(file if isinstance(file, str) else json.dumps(file))
    parser = argparse.ArgumentParser()
    add_flags(parser)
    return api_settings(parser.parse_args(["--shared-prompts", str(path)]))


def test_the_file(tmp_path: Path) -> None:
    prompts = settings_of(tmp_path, {"prompts": [{"prompt": "a"}, {"messages": [SYSTEM]}]}).shared_prompts
    assert prompts[0].prompt == "a" and prompts[1].messages[0].role == "system"  # type: ignore[index]
    for wrong, why in [
        ("{", "JSON"),
        ({"prompts": []}, "has no prompts"),
        ({"prompts": [{"prompt": 1}]}, "prompts"),
        ({}, "prompts"),
    ]:
        with pytest.raises(InvalidArgumentError, match=f"--shared-prompts: .*prompts.json.*{why}"):
            settings_of(tmp_path, wrong)
    latin = tmp_path / "latin"
    latin.write_bytes(b'{"prompts": [{"prompt": "caf\xe9"}]}')
    for path, why in [
        (str(tmp_path / "none"), "cannot be read"),
        ("/dev/zero", "is larger than 16777216 bytes"),
        (str(latin), r"is not valid UTF-8 \(byte 28\)"),
    ]:
        parser = argparse.ArgumentParser()
        add_flags(parser)
        with pytest.raises(InvalidArgumentError, match=f"--shared-prompts: {path} {why}"):
            api_settings(parser.parse_args(["--shared-prompts", path]))


def test_how_much_of_a_prompt_is_declared(tmp_path: Path) -> None:
    """The tokenizer of the script makes a byte a token, and `<role>content` of a message."""
    declared = settings_of(
        tmp_path,
        {"prompts": [{"prompt": "Once upon"}, {"messages": [SYSTEM], "add_generation_prompt": False}]},
    )

    async def scenario() -> list[int]:
        scripted = ScriptedEngine(Script(steps=spoken("x")))
        wide = ScriptedEngine(Script(steps=spoken("x")))
        wide.model = type(wide.model)("scripted", 1024, {}, {})
        async with serving(wide, api={"shared_prompts": declared.shared_prompts}, server=KEYS) as client:
            for path, body in [
                ("/v1/completions", {"prompt": "Once upon a time"}),
                ("/v1/completions", {"prompt": "Once a"}),
                ("/v1/completions", {"prompt": [79, 110]}),
                ("/v1/completions", {"prompt": "Once upon a time", "cache_salt": "own"}),
                ("/v1/chat/completions", {**HELLO, "messages": [SYSTEM, *HELLO["messages"]]}),
                ("/v1/chat/completions", HELLO),
            ]:
                status, _, answer = await client.post(path, body, headers={"Authorization": "Bearer r"})
                assert status == 200, answer
        with pytest.raises(ApiError, match="maximum context length"):  # more than the window of 256
            async with serving(scripted, api={"shared_prompts": declared.shared_prompts}):
                pass
        return [stream.shared_tokens for stream in wide.submitted]

    # The messages of HELLO begin with `<user>`, of which `<` is declared.
    whole = len("<system>" + SYSTEM["content"])
    assert run(scenario()) == [9, 5, 2, 0, whole, 1]


@pytest.mark.slow
def test_a_real_engine_shares_the_declared_blocks_and_no_more(smollm2: Path, tmp_path: Path) -> None:
    declared = settings_of(tmp_path, {"prompts": [{"messages": [SYSTEM]}]}).shared_prompts

    async def scenario() -> None:
        arguments = EngineArgs.from_kwargs({"model": str(smollm2), "max_model_len": 512, "threads": 1})
        engine = await asyncio.to_thread(lambda: ServedEngine(arguments))
        try:
            async with serving(engine, api={"shared_prompts": declared}, server=KEYS) as client:

                async def cached(key: str, content: str, **fields: Any) -> tuple[int, int]:
                    messages = [SYSTEM, {"role": "user", "content": content}]
                    headers = {"Authorization": f"Bearer {key}"}
                    body = {"messages": messages, "max_tokens": 1, **fields}
                    _, _, answer = await client.post("/v1/chat/completions", body, headers=headers)
                    usage = answer["usage"]
                    return usage["prompt_tokens_details"]["cached_tokens"], usage["prompt_tokens"]

                _, _, answer = await client.post(
                    "/tokenize", {"messages": [SYSTEM]}, headers={"Authorization": "Bearer r"}
                )
                common = answer["tokens"]
                private = "What did the first of us ask about the secret garden and its seven gates? " * 3
                assert (await cached("r", private))[0] == 0
                mine, whole = await cached("r", private)
                assert mine == whole - 1
                theirs, _ = await cached("b", private)
                assert theirs % 16 == 0 and 32 <= theirs <= len(common)
                # As much as for words that nobody has said.
                other = "How many windows does the house of the seventh sister have in the north? " * 3
                assert (await cached("b", other))[0] >= theirs
                assert (await cached("b", private, cache_salt="own"))[0] == 0
                engine._engine.model.engine.audit()
        finally:
            engine.shutdown()

    run(scenario())
