"""What of the engine's output a chat request wants to see."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from octavo_gateway.api.engine import Delta, Tokenizer
from octavo_gateway.api.logprobs import chat_logprobs
from octavo_gateway.api.parsers.answer_parser import AnswerParser, ParserSpec
from octavo_gateway.api.parsers.events import Event, Reasoning, joined
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
    parser: ParserSpec | None = None  # None: an answer is all text
    include_reasoning: bool = True
    echo: str = ""  # put before the text of each choice

    @property
    def counts_reasoning(self) -> bool:
        return self.parser is not None and self.parser.reasoning is not None

    def new_parser(self) -> AnswerParser | None:
        """What reads one choice; None: it is all text."""
        return None if self.parser is None else AnswerParser(self.parser)

    def shown(self, events: Iterable[Event]) -> list[Event]:
        """`events` without what the client does not want to see; neighbours are put together."""
        return joined(e for e in events if self.include_reasoning or not isinstance(e, Reasoning))

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
