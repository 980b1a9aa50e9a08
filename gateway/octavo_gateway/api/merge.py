"""Several generations of one HTTP request as one sequence of events."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence

from octavo_gateway.api.engine import Delta
from octavo_gateway.api.generation import Generation


async def merged(generations: Sequence[Generation]) -> AsyncIterator[tuple[int, Sequence[Delta]]]:
    """(index of the generation, its deltas) as they come. The first error ends it all."""
    if len(generations) == 1:
        async for deltas in generations[0].batches():
            yield 0, deltas
        return
    queue: asyncio.Queue[tuple[int, Sequence[Delta]]] = asyncio.Queue(maxsize=len(generations))

    async def pump(index: int, generation: Generation) -> None:
        async for deltas in generation.batches():
            await queue.put((index, deltas))

    pumps = [asyncio.ensure_future(pump(i, g)) for i, g in enumerate(generations)]
    everything = asyncio.ensure_future(asyncio.gather(*pumps))
    try:
        while not (everything.done() and queue.empty()):
            item = asyncio.ensure_future(queue.get())
            await asyncio.wait((item, everything), return_when=asyncio.FIRST_COMPLETED)
            if item.done():
                yield item.result()
                continue
            item.cancel()
            everything.result()
        everything.result()  # an error may have come while the last item was looked at
    finally:
        everything.cancel()
        for task in pumps:
            task.cancel()
