"""Deltas to the chunks of a streamed chat completion. The part before the text is encoded once per choice."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from octavo_gateway.api.chat_form import ChatForm
from octavo_gateway.api.engine import Delta
from octavo_gateway.protocol.chat import ChatLogprob, ChatLogprobs
from octavo_gateway.protocol.common import Usage

_encode = msgspec.json.encode

_NO_LOGPROBS = b'},"logprobs":null,"finish_reason":null}]'
_END = b"}\n\n"


class _Choice:
    """The state of one choice: what its chunks begin with, and what no chunk has carried yet."""

    def __init__(self, head: bytes, index: int) -> None:
        self.head = head + b'"choices":[{"index":%d,"delta":' % index
        self.content = self.head + b'{"content":'
        self.logprobs: list[ChatLogprob] = []
        self.token_ids: list[int] = []


class ChatChunks:
    """Encodes the deltas of one request as server-sent events."""

    def __init__(self, id: str, created: int, model: str, fingerprint: str, form: ChatForm) -> None:
        head = {
            "id": id,
            "object": "chat.completion.chunk",
            "created": created,
            "model": model,
            "system_fingerprint": fingerprint,
        }
        self._head = b"data: " + _encode(head)[:-1] + b","
        self._form = form
        self._text_only = form.top_logprobs is None and not form.token_ids
        self._choices: dict[int, _Choice] = {}
        self._end = _END

    def encode(self, deltas: Sequence[Delta], usage: Usage | None = None) -> bytes:
        """The events for `deltas`; those of one choice that wait together make one chunk.

        With `usage` each carries the tokens so far.
        """
        if usage is not None:
            self._end = b',"usage":' + _encode(usage) + _END
        if len(deltas) == 1:
            return self._encode_choice(deltas[0].choice, deltas)
        by_choice: dict[int, list[Delta]] = {}
        for delta in deltas:
            by_choice.setdefault(delta.choice, []).append(delta)
        return b"".join([self._encode_choice(i, group) for i, group in by_choice.items()])

    def usage(self, usage: Usage) -> bytes:
        """The last chunk, which has no choices."""
        return self._head + b'"choices":[],"usage":' + _encode(usage) + b"}\n\n"

    def _encode_choice(self, index: int, deltas: Sequence[Delta]) -> bytes:
        choice = self._choices.get(index)
        events = b""
        if choice is None:
            choice = self._choices[index] = _Choice(self._head, index)
            events = self._opening(choice, deltas)
        text = deltas[0].text if len(deltas) == 1 else "".join([d.text for d in deltas])
        finish = deltas[-1].finish
        if self._text_only:
            if text:
                events += choice.content + _encode(text) + _NO_LOGPROBS + self._end
        else:
            for delta in deltas:
                choice.logprobs += self._form.logprobs(delta)
                if self._form.token_ids:
                    choice.token_ids += delta.token_ids
            if text:
                events += choice.content + _encode(text) + b"}," + self._take(choice)
                events += b',"finish_reason":null}]' + self._end
        if finish is not None:
            events += choice.head + b"{}," + self._take(choice)
            events += b',"finish_reason":' + _encode(finish)
            stop_reason = deltas[-1].stop_reason
            if stop_reason is not None:
                events += b',"stop_reason":' + _encode(stop_reason)
            events += b"}]" + self._end
        return events

    def _opening(self, choice: _Choice, deltas: Sequence[Delta]) -> bytes:
        """The chunk with the role; a request's first one carries what there is to say about the prompt."""
        form = self._form
        event = choice.head + b'{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}]'
        if len(self._choices) == 1:
            if form.token_ids:
                event += b',"prompt_token_ids":' + _encode(form.prompt_ids)
            scores = form.prompt_logprobs(deltas)
            if scores is not None:
                event += b',"prompt_logprobs":' + _encode(scores)
        event += self._end
        if form.echo:
            event += choice.content + _encode(form.echo) + _NO_LOGPROBS + self._end
        return event

    def _take(self, choice: _Choice) -> bytes:
        """The logprobs and ids that wait, which the next chunk carries."""
        fields = b'"logprobs":null'
        if choice.logprobs:
            fields = b'"logprobs":' + _encode(ChatLogprobs(content=choice.logprobs))
            choice.logprobs = []
        if self._form.token_ids:
            fields += b',"token_ids":' + _encode(choice.token_ids)
            choice.token_ids = []
        return fields
