"""One choice of a chat completion that is answered as a whole."""

from __future__ import annotations

import msgspec

from octavo_gateway.api.chat_form import ChatForm
from octavo_gateway.api.engine import Delta
from octavo_gateway.api.parsers.events import CallArguments, CallStart, Content, Event
from octavo_gateway.protocol.chat import AssistantMessage, ChatChoice, ChatLogprob, ChatLogprobs
from octavo_gateway.protocol.tools import CalledFunction, CalledTool


class WholeChoice:
    """Collects the deltas of the choice."""

    def __init__(self, index: int, form: ChatForm) -> None:
        self._index = index
        self._form = form
        self._parser = form.new_parser()
        self._text = [form.echo]
        self._reasoning: list[str] = []
        self._calls: list[tuple[CallStart, list[str]]] = []
        self._token_ids: list[int] = []
        self._logprobs: list[ChatLogprob] = []
        self._finish = "error"
        self._stop_reason: int | str | None = None

    @property
    def reasoning_tokens(self) -> int:
        return 0 if self._parser is None else self._parser.reasoning_tokens

    def add(self, delta: Delta) -> None:
        if self._parser is None:
            self._text.append(delta.text)
        else:
            for event in self._form.shown(self._parser.take(delta)):
                self._add_event(event)
        self._logprobs += self._form.logprobs(delta)
        if self._form.token_ids:
            self._token_ids += delta.token_ids
        if delta.finish is not None:
            self._finish, self._stop_reason = delta.finish, delta.stop_reason

    def _add_event(self, event: Event) -> None:
        match event:
            case Content(text):
                self._text.append(text)
            case CallStart():
                self._calls.append((event, []))
            case CallArguments(index, text):
                self._calls[index][1].append(text)
            case _:
                self._reasoning.append(event.text)

    def _message(self) -> AssistantMessage:
        text, thought = "".join(self._text), "".join(self._reasoning)
        message = AssistantMessage(content=text if text or not (thought or self._calls) else None)
        if thought:
            message.reasoning = message.reasoning_content = thought
        if self._calls:
            message.tool_calls = [
                CalledTool(id=start.id, function=CalledFunction(name=start.name, arguments="".join(texts)))
                for start, texts in self._calls
            ]
        return message

    def result(self) -> ChatChoice:
        form = self._form
        return ChatChoice(
            index=self._index,
            message=self._message(),
            logprobs=None if form.top_logprobs is None else ChatLogprobs(content=self._logprobs),
            finish_reason="tool_calls" if self._calls and self._finish == "stop" else self._finish,
            stop_reason=msgspec.UNSET if self._stop_reason is None else self._stop_reason,
            token_ids=self._token_ids if form.token_ids else msgspec.UNSET,
        )
