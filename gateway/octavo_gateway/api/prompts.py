"""The prompts of /v1/completions: text, texts, ids or lists of ids."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from octavo_gateway.api.context import ApiContext
from octavo_gateway.protocol.completions import CompletionRequest
from octavo_gateway.protocol.errors import invalid


@dataclass(frozen=True)
class PlainPrompt:
    ids: Sequence[int]
    text: str  # as echoed


async def read_prompts(context: ApiContext, request: CompletionRequest) -> list[PlainPrompt]:
    """Every prompt with its ids, checked against the vocabulary and the window."""
    given = request.prompt
    texts = [given] if isinstance(given, str) else [item for item in given if isinstance(item, str)]
    return await context.workers.run(lambda: _Reader(context, request).read(), sum(map(len, texts)))


def check_vocabulary(ids: Sequence[int], vocab: int, param: str) -> None:
    """Refuse ids that no token has."""
    if ids and (min(ids) < 0 or max(ids) >= vocab):
        i, token = next((i, t) for i, t in enumerate(ids) if not 0 <= t < vocab)
        raise invalid(param, f"{param}[{i}]: token id {token} is out of vocabulary (0 to {vocab - 1}).")


class _Reader:
    """Runs in a tokenizer thread."""

    def __init__(self, context: ApiContext, request: CompletionRequest) -> None:
        self._context = context
        self._request = request
        self._tokenizer = context.engine.tokenizer

    def read(self) -> list[PlainPrompt]:
        given = self._request.prompt
        if isinstance(given, str):
            return [self._text(given, "prompt")]
        if not given:
            raise invalid("prompt", "prompt must not be empty.")
        ids = [item for item in given if isinstance(item, int)]
        if len(ids) == len(given):
            return [self._ids(ids, "prompt")]
        if ids:
            raise invalid("prompt", "prompt: token ids cannot be mixed with whole prompts in one list.")
        return [self._one(item, f"prompt[{i}]") for i, item in enumerate(given)]

    def _one(self, item: str | int | list[int], path: str) -> PlainPrompt:
        assert not isinstance(item, int)
        return self._text(item, path) if isinstance(item, str) else self._ids(item, path)

    def _text(self, text: str, path: str) -> PlainPrompt:
        if not text:
            raise invalid(path, f"{path} must not be empty.")
        if self._request.truncate_prompt_tokens is None:
            self._context.length.check_bytes(len(text.encode()), path)
        special = self._request.add_special_tokens is not False
        ids = self._tokenizer.encode(text, add_special_tokens=special)
        kept = self._context.shorten_prompt(ids, self._request, path)
        if len(kept) < len(ids) and self._request.echo:
            text = self._tokenizer.decode(kept)
        return PlainPrompt(kept, text)

    def _ids(self, ids: list[int], path: str) -> PlainPrompt:
        ids = self._context.shorten_prompt(ids, self._request, path)
        check_vocabulary(ids, self._tokenizer.vocab_size, path)
        return PlainPrompt(ids, self._tokenizer.decode(ids) if self._request.echo else "")
