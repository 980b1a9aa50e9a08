"""Octavo's AsyncEngine as a worker, as the other libraries run: usage: octavo_worker.py MODEL THREADS ISA

One line of JSON in, one out.
"""

import asyncio
import json
import sys
import time

from octavo import AsyncEngine, SamplingParams


async def receive(engine, shot, start) -> dict:
    params = SamplingParams(temperature=0, max_tokens=shot["max_tokens"], ignore_eos=True)
    stream = engine.submit(shot["prompt"], params)
    chunks, tokens = [], 0
    while not stream.finished or stream.backlog:
        deltas = await stream.next()
        chunks.append(time.perf_counter() - start)
        tokens += sum(len(delta.token_ids) for delta in deltas)
    return {"chunks": chunks, "finished": chunks[-1], "tokens": tokens}


async def answer(engine, shots) -> list:
    start = time.perf_counter()
    return await asyncio.gather(*(receive(engine, shot, start) for shot in shots))


def main() -> None:
    model, threads, isa = sys.argv[1], int(sys.argv[2]), sys.argv[3]
    engine = AsyncEngine(model, threads=threads, isa=isa)
    for line in sys.stdin:
        print(json.dumps({"records": asyncio.run(answer(engine, json.loads(line)["shots"]))}), flush=True)
    engine.shutdown()


main()
