"""What a streamed chunk costs the event loop's thread, in microseconds of its CPU time.

    python tests/gateway/stream_cost.py [MODEL] [TOKENS]

serves in this process, while another one reads 32 streams.
"""

from __future__ import annotations

import asyncio
import sys
import time

from serving import serving

STREAMS = 32
_READER = """
import json, selectors, socket, sys
port, streams, tokens = map(int, sys.argv[1:])
body = json.dumps({"messages": [{"role": "user", "content": "Hi"}], "max_tokens": tokens, "ignore_eos": True,
                   "stream": True}).encode()
head = b"POST /v1/chat/completions HTTP/1.1\\r\\nHost: x\\r\\nContent-Length: %d\\r\\n\\r\\n" % len(body)
selector, chunks, left = selectors.DefaultSelector(), 0, streams
for _ in range(streams):
    s = socket.create_connection(("127.0.0.1", port))
    s.sendall(head + body)
    selector.register(s, selectors.EVENT_READ)
while left:
    for key, _ in selector.select():
        data = key.fileobj.recv(65536)
        chunks += data.count(b"data: ")
        if not data or b"[DONE]" in data:
            selector.unregister(key.fileobj)
            left -= 1
print(chunks)
"""


async def microseconds_per_chunk(model: str, tokens: int, rounds: int) -> list[float]:
    """One figure per round; each holds the requests' own cost too, spread over their chunks."""
    from octavo.engine_args import EngineArgs
    from octavo_gateway.server.served_engine import ServedEngine

    arguments = {"model": model, "max_model_len": 1024, "threads": 1}
    engine = await asyncio.to_thread(lambda: ServedEngine(EngineArgs.from_kwargs(arguments)))
    figures = []
    try:
        async with serving(engine) as client:
            for _ in range(rounds):
                reader = await asyncio.create_subprocess_exec(
                    *(sys.executable, "-c", _READER, str(client.port), str(STREAMS), str(tokens)),
                    stdout=asyncio.subprocess.PIPE,
                )
                before = time.thread_time()
                out, _ = await reader.communicate()
                figures.append((time.thread_time() - before) / int(out) * 1e6)
    finally:
        engine.shutdown()
    return figures


if __name__ == "__main__":
    import uvloop

    model, tokens = (sys.argv[1:] + ["smollm2", "200"][len(sys.argv) - 1 :])[:2]
    costs = uvloop.run(microseconds_per_chunk(model, int(tokens), 3))
    print(", ".join(f"{cost:.1f}" for cost in costs), "microseconds per chunk")
