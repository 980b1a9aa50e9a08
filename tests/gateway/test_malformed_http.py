"""What is not HTTP is refused in the API's own shape, without a word of the input."""

from __future__ import annotations

import asyncio
import json

import pytest
from scripted import Script, ScriptedEngine, spoken
from serving import run, serving

SECRET = b"sk-SECRETKEY"
POST = b"POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
MALFORMED = {
    "header": (b"GET /health HTTP/1.1\r\nHost: x\r\nAuthorization: Bearer " + SECRET + b"\x01\r\n\r\n", 400),
    "first line": (SECRET + b"\r\n\r\n", 400),
    "version": (b"GET /" + SECRET + b" HTTP/9.9\r\n\r\n", 400),
    "chunk": (POST + b"Transfer-Encoding: chunked\r\n\r\n" + SECRET + b"\r\n", 400),
    "short length": (POST + b"Content-Length: 2\r\n\r\n{}" + SECRET + b"\r\n\r\n", 400),
    "gzip": (POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n", 415),
    "expect": (POST + b"Expect: 200-ok\r\nContent-Length: 2\r\n\r\n{}", 417),
    "connect": (b"CONNECT example.org:443 HTTP/1.1\r\nHost: example.org\r\n\r\n", 405),
}


@pytest.mark.parametrize(("sent", "status"), MALFORMED.values(), ids=MALFORMED.keys())
def test_the_answer_quotes_nothing(sent: bytes, status: int) -> None:
    async def scenario() -> None:
        async with serving(ScriptedEngine(Script(steps=spoken("fine")))) as client:
            reader, writer = await asyncio.open_connection("127.0.0.1", client.port)
            writer.write(sent)
            received = await asyncio.wait_for(reader.read(1 << 16), 10)
            while b"}}" not in received or (b"short" in sent and received.count(b"HTTP/1.1") < 2):
                more = await asyncio.wait_for(reader.read(1 << 16), 10)
                if not more:
                    break
                received += more
            writer.close()
            head, _, body = received[received.rindex(b"HTTP/1.") :].partition(b"\r\n\r\n")
            assert head.startswith(b"HTTP/1.1 %d " % status)
            assert b"X-Request-Id: " in head
            assert set(json.loads(body)["error"]) == {"message", "type", "param", "code"}
            assert SECRET not in received

    run(scenario())
