"""`chat_template_kwargs` beside what the server itself gives to the template."""

from __future__ import annotations

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import run, serving


@pytest.mark.parametrize("name", ["messages", "tools", "add_special_tokens", "allow_control_tokens", "self"])
def test_a_name_that_the_server_gives_is_refused(name: str) -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("fine")))) as client:
            status, _, body = await client.chat(chat_template_kwargs={name: []})
            assert (status, body["error"]["param"]) == (400, "chat_template_kwargs")
            assert f"chat_template_kwargs.{name}" in body["error"]["message"]

    run(scenario())


def test_the_requests_own_fields_may_be_there() -> None:
    async def scenario() -> None:
        engine = ScriptedEngine(Script(steps=spoken("fine")))
        async with serving(engine) as client:
            for fields in (
                {"add_generation_prompt": False},
                {"chat_template_kwargs": {"add_generation_prompt": False}},
                {"chat_template_kwargs": {"add_generation_prompt": False}, "add_generation_prompt": True},
            ):
                assert (await client.chat(**fields))[0] == 200
                assert not bytes(engine.submitted[-1].prompt).endswith(b"<assistant>")
            status, _, body = await client.chat(chat_template_kwargs={"continue_final_message": True})
            assert (status, body["error"]["param"]) == (400, "continue_final_message")
            assert (await client.chat(chat_template_kwargs={"add_generation_prompt": 1}))[0] == 400

    run(scenario())
