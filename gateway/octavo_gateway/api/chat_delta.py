"""What was found in an answer as the `delta` objects of its chunks."""

from __future__ import annotations

import msgspec

from octavo_gateway.api.parsers.events import CallArguments, CallStart, Content, Event

_encode = msgspec.json.encode


def content_delta(text: str) -> bytes:
    return b'{"content":' + _encode(text) + b"}"


def event_delta(event: Event) -> bytes:
    match event:
        case Content(text):
            return content_delta(text)
        case CallStart(index, id, name):
            head = b'{"tool_calls":[{"index":%d,"id":%b,"type":"function"' % (index, _encode(id))
            return head + b',"function":{"name":%b,"arguments":""}}]}' % _encode(name)
        case CallArguments(index, text):
            return b'{"tool_calls":[{"index":%d,"function":{"arguments":%b}}]}' % (index, _encode(text))
    thought = _encode(event.text)
    return b'{"reasoning":' + thought + b',"reasoning_content":' + thought + b"}"
