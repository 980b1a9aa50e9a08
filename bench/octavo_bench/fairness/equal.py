"""Tenants that want equally much in requests of very different size, and what each of them got."""

from __future__ import annotations

import asyncio
import json
import random
from collections import Counter
from collections.abc import Sequence

from octavo_bench.fairness.requests import Size, complete
from octavo_bench.own_server import ServedProcess

# Tokens that each tenant has under way at least, so that nobody ever runs out of work.
_BACKLOG = 4000


def jain(shares: Sequence[float]) -> float:
    """Jain's index: 1 when all are equal, 1/n when one has everything."""
    squares = sum(s * s for s in shares)
    return sum(shares) ** 2 / (len(shares) * squares) if squares else 1.0


async def tokens_served(
    server: ServedProcess, sizes: Sequence[Size], warm: float, seconds: float, seed: int
) -> list[int]:
    """Tokens computed for each tenant, prompt and output, in ``seconds`` after ``warm`` ones.

    Tenants are told apart by the lengths of their prompts, which must differ.
    """
    ended: Counter[int] = Counter()
    draw = random.Random(seed)

    async def ask_on(tenant: int) -> None:
        while True:
            await complete(server, tenant, sizes[tenant], draw)
            ended[tenant] += sizes[tenant].tokens

    askers = [
        asyncio.create_task(ask_on(tenant))
        for tenant, size in enumerate(sizes)
        for _ in range(max(2, _BACKLOG // size.tokens))
    ]
    try:
        await asyncio.sleep(warm)
        before = await _under_way(server, sizes)
        ended.clear()
        await asyncio.wait(askers, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
        for asker in askers:
            if asker.done():
                asker.result()  # raises what went wrong
        served = dict(ended)
        after = await _under_way(server, sizes)
    finally:
        for asker in askers:
            asker.cancel()
        await asyncio.gather(*askers, return_exceptions=True)
    return [served.get(t, 0) + after[t] - before[t] for t in range(len(sizes))]


async def _under_way(server: ServedProcess, sizes: Sequence[Size]) -> list[int]:
    """Tokens computed so far for requests that run, by tenant."""
    status, text = await server.get("/debug/cache", server.admin)
    if status != 200:
        raise RuntimeError(f"/debug/cache answers {status}: {text[:300]}")
    tenant_of = {size.prompt: tenant for tenant, size in enumerate(sizes)}
    out = [0] * len(sizes)
    for request in json.loads(text)["running"]:
        out[tenant_of[request["prompt_tokens"]]] += request["computed"]
    return out
