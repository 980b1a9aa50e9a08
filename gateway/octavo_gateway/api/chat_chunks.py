"""Deltas to the chunks of a streamed chat completion. The part before the text is encoded once per choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from octavo_gateway.api.engine import Delta, PositionLogprobs
from octavo_gateway.protocol.chat import ChatLogprob, ChatLogprobs
from octavo_gateway.protocol.common import Usage

RenderLogprobs = Callable[[Sequence[PositionLogprobs]], list[ChatLogprob]]

_encode = msgspec.json.encode


class _Choice:
    """The state of one choice: what its chunks begin with, and the logprobs that no chunk has carried yet."""

    def __init__(self, head: bytes, index: int) -> None:
        self.head = head + b'"choices":[{"index":%d,"delta":' % index
        self.content = self.head + b'{"content":'
        self.role = (
            self.head + b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]}\n\n'
        )
        self.started = False
        self.logprobs: list[ChatLogprob] = []


class ChatChunks:
    """Encodes the deltas of one request as server-sent events."""

    def __init__(
        self, id: str, created: int, model: str, fingerprint: str, render: RenderLogprobs | None
    ) -> None:
        head = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "system_fingerprint": fingerprint,
        }
        self._head = b"data: " + _encode(head)[:-1] + b","
        self._render = render
        self._choices: dict[int, _Choice] = {}

    def encode(self, deltas: Sequence[Delta]) -> bytes:
        """The events for `deltas`; those of one choice that wait together make one chunk."""
        if len(deltas) == 1:
            return self._encode_choice(deltas[0].choice, deltas)
        by_choice: dict[int, list[Delta]] = {}
        for delta in deltas:
            by_choice.setdefault(delta.choice, []).append(delta)
        return b"".join(self._encode_choice(i, group) for i, group in by_choice.items())

    def usage(self, usage: Usage) -> bytes:
        """The last chunk, which has no choices."""
        return self._head + b'"choices":[],"usage":' + _encode(usage) + b"}\n\n"

    def _encode_choice(self, index: int, deltas: Sequence[Delta]) -> bytes:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(self._head, index)
        text = deltas[0].text if len(deltas) == 1 else "".join([d.text for d in deltas])
        if self._render is not None:
            for delta in deltas:
                choice.logprobs += self._render(delta.logprobs or ())
        events = b"" if choice.started else choice.role
        choice.started = True
        if text:
            events += choice.content + _encode(text) + b"}," + self._take_logprobs(choice)
            events += b',"finish_reason":null}]}\n\n'
        last = deltas[-1]
        if last.finish is not None:
            events += choice.head + b"{}," + self._take_logprobs(choice)
            events += b',"finish_reason":' + _encode(last.finish)
            if last.stop_reason is not None:
                events += b',"stop_reason":' + _encode(last.stop_reason)
            events += b"}]}\n\n"
        return events

    def _take_logprobs(self, choice: _Choice) -> bytes:
        if not choice.logprobs:
            return b'"logprobs":null'
        taken, choice.logprobs = choice.logprobs, []
        return b'"logprobs":' + _encode(ChatLogprobs(content=taken))
