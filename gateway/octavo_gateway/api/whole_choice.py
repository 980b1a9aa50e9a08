"""One choice of a chat completion that is answered as a whole."""

from __future__ import annotations

import msgspec

from octavo_gateway.api.chat_form import ChatForm
from octavo_gateway.api.engine import Delta
from octavo_gateway.protocol.chat import AssistantMessage, ChatChoice, ChatLogprob, ChatLogprobs


class WholeChoice:
    """Collects the deltas of the choice."""

    def __init__(self, index: int, form: ChatForm) -> None:
        self._index = index
        self._form = form
        self._text = [form.echo]
        self._token_ids: list[int] = []
        self._logprobs: list[ChatLogprob] = []
        self._finish = "error"
        self._stop_reason: int | str | None = None

    def add(self, delta: Delta) -> None:
        self._text.append(delta.text)
        self._logprobs += self._form.logprobs(delta)
        if self._form.token_ids:
            self._token_ids += delta.token_ids
        if delta.finish is not None:
            self._finish, self._stop_reason = delta.finish, delta.stop_reason

    def result(self) -> ChatChoice:
        form = self._form
        return ChatChoice(
            index=self._index,
            message=AssistantMessage(content="".join(self._text)),
            logprobs=None if form.top_logprobs is None else ChatLogprobs(content=self._logprobs),
            finish_reason=self._finish,
            stop_reason=msgspec.UNSET if self._stop_reason is None else self._stop_reason,
            token_ids=self._token_ids if form.token_ids else msgspec.UNSET,
        )
