"""What a client sees that does not know the server."""

from __future__ import annotations

import asyncio

from scripted import Script, ScriptedEngine, spoken
from serving import run, serving


def test_a_path_that_is_not_there_leads_to_the_documentation() -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("x")))) as client:
            for path in ("/", "/v1", "/nothing"):
                status, _, body = await client.get(path)
                assert status == 404 and "GET /docs" in body["error"]["message"]

    run(scenario())


def test_no_answer_names_versions() -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("x")))) as client:
            answers = [await client.get(path) for path in ("/health", "/docs", "/metrics", "/nothing")]
            answers += [await client.chat(stream=stream) for stream in (False, True)]
            assert {headers["Server"] for _, headers, _ in answers} == {"octavo"}
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(b"NOT HTTP\r\n\r\n")
            raw = await reader.read()
            writer.close()
            assert b"400" in raw and b"Server: octavo\r\n" in raw and b"aiohttp" not in raw

    run(scenario())
