"""One streamed completion of a tenant, timed."""

from __future__ import annotations

import random
import time
from dataclasses import dataclass

import msgspec

from octavo_bench.own_server import ServedProcess

# Ids that are plain text in the vocabularies at hand.
_FIRST_ID, _LAST_ID = 300, 9000


@dataclass(frozen=True, slots=True)
class Size:
    """Tokens of a request."""

    prompt: int
    output: int

    @property
    def tokens(self) -> int:
        return self.prompt + self.output


async def complete(server: ServedProcess, tenant: int, size: Size, draw: random.Random) -> float:
    """Sends a prompt that nobody sent before, reads the answer to its end; seconds to its first token."""
    body = {
        "prompt": [draw.randrange(_FIRST_ID, _LAST_ID) for _ in range(size.prompt)],
        "max_tokens": size.output,
        "ignore_eos": True,
        "temperature": 0,
        "stream": True,
    }
    headers = {"Authorization": f"Bearer {server.keys[tenant]}"}
    begin = time.perf_counter()
    url = f"{server.base}/v1/completions"
    async with server.session.post(url, data=msgspec.json.encode(body), headers=headers) as response:
        if response.status != 200:
            raise RuntimeError(f"HTTP {response.status}: {(await response.read())[:300]!r}")
        first: float | None = None
        ended = False
        async for line in response.content:
            if line.startswith(b"data:"):
                first = first or time.perf_counter()
                ended = line[5:].strip() == b"[DONE]"
    if first is None or not ended:
        raise RuntimeError("the stream was cut")
    return first - begin
