"""Deltas to the chunks of a streamed chat completion. The part before the text is encoded once per choice."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import msgspec

from octavo_gateway.api.chat_delta import content_delta, event_delta
from octavo_gateway.api.chat_form import ChatForm
from octavo_gateway.api.engine import Delta
from octavo_gateway.api.parsers.answer_parser import AnswerParser
from octavo_gateway.protocol.chat import ChatLogprob, ChatLogprobs
from octavo_gateway.protocol.common import Usage

_encode = msgspec.json.encode

_NO_LOGPROBS = b',"logprobs":null,"finish_reason":null}]'
_END = b"}\n\n"


class _Choice:
    """The state of one choice: what its chunks begin with, and what no chunk has carried yet."""

    def __init__(self, head: bytes, index: int, parser: AnswerParser | None) -> None:
        self.head = head + b'"choices":[{"index":%d,"delta":' % index
        self.parser = parser
        self.opened = False
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
        self._prompt_due = True  # no chunk has told of the prompt yet
        self._end = _END

    def encode(self, deltas: Sequence[Delta], usage: Callable[[], Usage] | None = None) -> bytes:
        """The events for `deltas`; what is text of one choice in those that wait together makes one chunk.

        With `usage` each carries the tokens so far.
        """
        by_choice: dict[int, list[Delta]] = {}
        for delta in deltas:
            by_choice.setdefault(delta.choice, []).append(delta)
        found = [(i, group, self._pieces(self._choice(i), group)) for i, group in by_choice.items()]
        if usage is not None:
            self._end = b',"usage":' + _encode(usage()) + _END
        return b"".join([self._encode_choice(*one) for one in found])

    def text_event(self, text: str) -> bytes | None:
        """The event that `text` of the first choice makes; None where it depends on more than that."""
        if not self._text_only or self._form.running_usage or self._form.parser is not None:
            return None
        return self._choice(0).head + content_delta(text) + _NO_LOGPROBS + _END

    @property
    def reasoning_tokens(self) -> int | None:
        """Of all choices so far; None where the model does not reason."""
        if not self._form.counts_reasoning:
            return None
        return sum(choice.parser.reasoning_tokens for choice in self._choices.values() if choice.parser)

    def usage(self, usage: Usage) -> bytes:
        """The last chunk, which has no choices."""
        return self._head + b'"choices":[],"usage":' + _encode(usage) + b"}\n\n"

    def _choice(self, index: int) -> _Choice:
        choice = self._choices.get(index)
        if choice is None:
            choice = self._choices[index] = _Choice(self._head, index, self._form.new_parser())
        return choice

    def _pieces(self, choice: _Choice, deltas: Sequence[Delta]) -> list[bytes]:
        """What the chunks of `deltas` carry, one `delta` object each."""
        if choice.parser is None:
            text = "".join([d.text for d in deltas if not d.sent])
            return [content_delta(text)] if text else []
        events = self._form.shown(event for delta in deltas for event in choice.parser.take(delta))
        return [event_delta(event) for event in events]

    def _encode_choice(self, index: int, deltas: Sequence[Delta], pieces: Sequence[bytes]) -> bytes:
        choice = self._choices[index]
        events = b""
        if not choice.opened:
            choice.opened = True
            events = self._opening(choice, deltas)
        if self._text_only:
            for piece in pieces:
                events += choice.head + piece + _NO_LOGPROBS + self._end
        else:
            for delta in deltas:
                choice.logprobs += self._form.logprobs(delta)
                if self._form.token_ids:
                    choice.token_ids += delta.token_ids
            for piece in pieces:
                events += choice.head + piece + b"," + self._take(choice)
                events += b',"finish_reason":null}]' + self._end
        finish = deltas[-1].finish
        if finish is not None:
            if finish == "stop" and choice.parser is not None and choice.parser.called:
                finish = "tool_calls"
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
        event = choice.head + b'{"role":"assistant","content":""}' + _NO_LOGPROBS
        if self._prompt_due:
            self._prompt_due = False
            if form.token_ids:
                event += b',"prompt_token_ids":' + _encode(form.prompt_ids)
            scores = form.prompt_logprobs(deltas)
            if scores is not None:
                event += b',"prompt_logprobs":' + _encode(scores)
        event += self._end
        if form.echo:
            event += choice.head + content_delta(form.echo) + _NO_LOGPROBS + self._end
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
