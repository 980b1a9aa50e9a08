"""Clients that cost little: sockets, no HTTP library. Run as ``python client.py MODE PORT CONNECTIONS N TOKENS``.

``stream``: each connection reads one streamed chat completion of TOKENS tokens; prints how many chunks there were.
``whole``: the connections together send N requests without streaming, each the next when it has its answer; prints how
many were answered with 200.
"""

from __future__ import annotations

import json
import selectors
import socket
import sys
from collections.abc import Iterator

_READ = 1 << 18


def _request(tokens: int, stream: bool) -> bytes:
    message = {"role": "user", "content": "What does a gateway cost?"}
    body = json.dumps(
        {"messages": [message], "max_tokens": tokens, "ignore_eos": True, "stream": stream}
    ).encode()
    head = "POST /v1/chat/completions HTTP/1.1\r\nHost: bench\r\nContent-Type: application/json\r\n"
    return head.encode() + b"Content-Length: %d\r\n\r\n" % len(body) + body


def _connect(port: int, connections: int) -> tuple[selectors.BaseSelector, list[socket.socket]]:
    selector = selectors.DefaultSelector()
    sockets = [socket.create_connection(("127.0.0.1", port)) for _ in range(connections)]
    for s in sockets:
        selector.register(s, selectors.EVENT_READ)
    return selector, sockets


def _received(selector: selectors.BaseSelector) -> Iterator[tuple[socket.socket, bytes]]:
    for key, _ in selector.select():
        s = key.fileobj
        assert isinstance(s, socket.socket)
        yield s, s.recv(_READ)


def stream(port: int, connections: int, tokens: int) -> int:
    selector, sockets = _connect(port, connections)
    for s in sockets:
        s.sendall(_request(tokens, True))
    open_, chunks, tails = len(sockets), 0, dict.fromkeys(sockets, b"")
    while open_:
        for s, data in _received(selector):
            if not tails[s] and not data.startswith(b"HTTP/1.1 200"):
                sys.exit(f"the server answers {data[:200]!r}")
            # A marker may be cut in two: the end of what came before is looked at again.
            seen = tails[s] + data
            chunks += seen.count(b"data: ") - tails[s].count(b"data: ")
            tails[s] = seen[-16:]
            if not data or b"[DONE]" in seen:
                selector.unregister(s)
                open_ -= 1
    return chunks - connections  # [DONE] is no chunk


def whole(port: int, connections: int, requests: int, tokens: int) -> int:
    selector, sockets = _connect(port, min(connections, requests))
    request = _request(tokens, False)
    sent, good, under_way = len(sockets), 0, len(sockets)
    for s in sockets:
        s.sendall(request)
    buffers = dict.fromkeys(sockets, b"")
    while under_way:
        for s, data in _received(selector):
            buffers[s] += data
            head, separator, body = buffers[s].partition(b"\r\n\r\n")
            if data and (not separator or len(body) < _length(head)):
                continue
            good += head.startswith(b"HTTP/1.1 200")
            buffers[s] = b""
            if data and sent < requests:
                s.sendall(request)
                sent += 1
            else:
                selector.unregister(s)
                under_way -= 1
    return good


def _length(head: bytes) -> int:
    for line in head.lower().split(b"\r\n"):
        if line.startswith(b"content-length:"):
            return int(line.split(b":")[1])
    return 0


if __name__ == "__main__":
    mode, (port, connections, requests, tokens) = sys.argv[1], map(int, sys.argv[2:6])
    print(
        stream(port, connections, tokens) if mode == "stream" else whole(port, connections, requests, tokens)
    )
