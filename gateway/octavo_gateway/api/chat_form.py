"""What of the engine's output a chat request wants to see."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo_gateway.api.engine import Delta, Tokenizer
from octavo_gateway.api.logprobs import chat_logprobs
from octavo_gateway.api.prompt_logprobs import positions_of, prompt_logprobs
from octavo_gateway.protocol.chat import ChatLogprob
from octavo_gateway.protocol.common import PromptLogprobs


@dataclass(frozen=True)
class ChatForm:
    tokenizer: Tokenizer
    prompt_ids: Sequence[int]
    top_logprobs: int | None = None  # None: no logprobs; 0: those of the chosen tokens; k: and the k best
    prompt_top_logprobs: int | None = None  # the same for the prompt
    token_ids: bool = False
    include_usage: bool = False
    running_usage: bool = False  # in every chunk
    echo: str = ""  # put before the text of each choice

    def logprobs(self, delta: Delta) -> list[ChatLogprob]:
        """The entries of the tokens that `delta` carries, where they were asked for."""
        if self.top_logprobs is None:
            return []
        return chat_logprobs(delta.logprobs or (), self.top_logprobs, self.tokenizer)

    def prompt_logprobs(self, deltas: Sequence[Delta]) -> PromptLogprobs | None:
        """The scores of the prompt; `deltas` are a request's first."""
        if self.prompt_top_logprobs is None:
            return None
        positions = positions_of(deltas, len(self.prompt_ids))
        return prompt_logprobs(positions, self.prompt_top_logprobs, self.tokenizer)
